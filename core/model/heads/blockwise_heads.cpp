#include "core/model/heads/blockwise_heads.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace speclab {

BlockwiseHeads::BlockwiseHeads(const HeadCard& card, const Model& target)
    : norm_(card.tap == kFinalNorm ? FinalNorm::kDone : FinalNorm::kApply) {
  if (!card.vocabulary_map.empty()) {
    throw Error({fmt::format("{}: vocabulary_map", card.weights.string()),
                 fmt::format("\"{}\"", card.vocabulary_map),
                 "no map, because heads of the kind blockwise use the output layer of the target",
                 "Remove vocabulary_map from the card."});
  }
  const HeadFile file = HeadFile::open(card.weights);
  Backend& backend = target.backend();
  const int hidden = target.config().hidden;
  in_ = file.linear(backend, "ffn_in", {hidden}, card.inner, Bias::kPresent);
  for (int i = 0; i < card.heads; ++i)
    out_.push_back(file.linear(backend, fmt::format("ffn_out.{}", i), {card.inner}, hidden, Bias::kPresent));
}

void BlockwiseHeads::prepare(HeadRunner& runner, const HeadRows& states, HeadRows& inner) const {
  runner.linear(in_, {&states}, inner);
  runner.activate(Activation::kRelu, inner);
}

void BlockwiseHeads::logits(HeadRunner& runner, int head, const HeadRows& states, const HeadRows& inner,
                            HeadRows& to) {
  SPECLAB_CHECK(head >= 0 && head < count(), "head {} of {}", head, count());
  runner.linear(out_[static_cast<std::size_t>(head)], {&inner}, sum_);
  runner.add(states, sum_);
  runner.logits(sum_, norm_, to);
}

}  // namespace speclab
