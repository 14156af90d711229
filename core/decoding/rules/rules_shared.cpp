#include "core/decoding/rules/rules.h"

namespace speclab::rules {

Token sample_target(const TargetRow& row, const Coins& coins, std::int64_t position, const RuleOptions&) {
  return row.p->sample(coins, {position, Purpose::target, 0});
}

Token greedy_target(const TargetRow& row, const Coins&, std::int64_t, const RuleOptions&) {
  return row.p->argmax();
}

LossClass lossless(const RuleOptions&, const SamplingParams& sampling) {
  return sampling.temperature <= 0 ? LossClass::l2 : LossClass::l1;
}

void law_of_target(const TargetRow& row, const Distribution*, Token, const RuleOptions&,
                   std::vector<double>& law) {
  row.p->probabilities(law);
}

void law_of_draft(const TargetRow& row, const Distribution* q, Token one_hot, std::vector<double>& law) {
  if (q != nullptr) {
    q->probabilities(law);
  } else {
    law.assign(static_cast<std::size_t>(row.p->vocab()), 0.0);
    law[static_cast<std::size_t>(one_hot)] = 1;
  }
}

}  // namespace speclab::rules
