// Lossy rules that accept a token for what it is in the target's row, whatever the draft's probability:
// accept x when x is in a set A of the row. The criterion looks at p, or at temperature 0 at the raw row (p
// is one-hot there); the token after a rejection is the target's: a sample of p (argmax at temperature 0), or
// of the typical set. Output law for one child: q(x) [x in A] + (1 - q(A)) f(x). The papers below are greedy;
// above temperature 0 this is our reading.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/spec/rules.h"

namespace speclab::rules {
namespace {

/// The set A of one row; never a token of probability 0. `best` is in it where always_best says so, so that
/// the tightest parameter is exact matching at temperature 0.
struct Accepted {
  const Distribution& row;
  Token best;
  double bar;   // probability that a token must reach ...
  bool strict;  // ... or pass
  int ranks;    // the token is also among this many most probable ones; 0 = no condition
  bool always_best;
  bool operator()(Token x) const {
    if (x == best && always_best) return true;
    const double px = row.prob(x);
    return px > 0 && (strict ? px > bar : px >= bar) && (ranks == 0 || row.rank(x) < ranks);
  }
};

Accepted top_beta(const TargetRow& row, const RuleOptions& o) {
  return {criterion_row(row), row.p->argmax(), 0, false, o.beta, true};
}
Accepted gap(const TargetRow& row, const RuleOptions& o) {
  const Distribution& seen = criterion_row(row);
  const Token best = row.p->argmax();
  return {seen, best, o.gap > 0 ? seen.prob(seen.argmax()) * std::exp(-o.gap) : 2, false, 0, true};
}
Accepted typical(const TargetRow& row, const RuleOptions& o) {
  const Distribution& seen = criterion_row(row);
  return {seen, row.p->argmax(), std::min(o.epsilon, o.delta * std::exp(-seen.entropy())), true, 0, true};
}
Accepted threshold(const TargetRow& row, const RuleOptions& o) {
  return {criterion_row(row), row.p->argmax(), o.theta, false, o.top_k, false};
}

/// Tokens of A when the set is wanted as a whole: ranks by one pass instead of one per token.
void members(const Accepted& accepted, std::vector<std::uint8_t>& in) {
  const int vocab = accepted.row.vocab();
  in.assign(static_cast<std::size_t>(vocab), 0);
  Accepted by_bar = accepted;
  by_bar.ranks = 0;
  for (Token x = 0; x < vocab; ++x) in[static_cast<std::size_t>(x)] = by_bar(x) ? 1 : 0;
  if (accepted.ranks == 0 || accepted.ranks >= vocab) return;
  thread_local std::vector<Token> order;
  order.resize(static_cast<std::size_t>(vocab));
  for (Token x = 0; x < vocab; ++x) order[static_cast<std::size_t>(x)] = x;
  std::nth_element(order.begin(), order.begin() + accepted.ranks, order.end(), [&](Token a, Token b) {
    const double pa = accepted.row.prob(a), pb = accepted.row.prob(b);
    return pa > pb || (pa == pb && a < b);
  });
  for (auto it = order.begin() + accepted.ranks; it != order.end(); ++it) {
    if (*it != accepted.best || !accepted.always_best) in[static_cast<std::size_t>(*it)] = 0;
  }
}

using Criterion = Accepted (*)(const TargetRow&, const RuleOptions&);

double accepted_mass(const Accepted& accepted, const Distribution* q, Token one_hot) {
  if (q == nullptr || q->one_hot()) return accepted(q == nullptr ? one_hot : q->argmax()) ? 1 : 0;
  thread_local std::vector<std::uint8_t> in;
  members(accepted, in);
  double mass = 0;
  for (std::size_t x = 0; x < in.size(); ++x) mass += in[x] != 0 ? static_cast<double>(q->weights()[x]) : 0;
  return std::min(1.0, mass / q->sum());
}

/// p restricted to the typical set, not normalised. This is eta-sampling of the row (Hewitt et al. 2022).
void typical_weights(const TargetRow& row, const RuleOptions& options, std::vector<double>& weights) {
  const Accepted accepted = typical(row, options);
  row.p->probabilities(weights);
  for (std::size_t x = 0; x < weights.size(); ++x) {
    if (!accepted(static_cast<Token>(x))) weights[x] = 0;
  }
}

Token typical_target(const TargetRow& row, const Coins& coins, std::int64_t position,
                     const RuleOptions& options) {
  if (row.p->one_hot()) return row.p->argmax();
  thread_local std::vector<double> weights;
  typical_weights(row, options, weights);
  return static_cast<Token>(coins.categorical(weights, {position, Purpose::target, 0}));
}

template <Criterion kCriterion,
          Token (*kTarget)(const TargetRow&, const Coins&, std::int64_t, const RuleOptions&)>
void test(const NodeTest& node, const RuleOptions& options, NodeVerdict& out) {
  const Accepted accepted = kCriterion(node.row, options);
  out.accepted = out.correction = -1;
  out.expected.clear();
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const auto [token, q] = node.children[i];
    out.expected.push_back(accepted_mass(accepted, q, token));
    if (accepted(token)) {
      out.accepted = static_cast<int>(i);
      return;
    }
  }
  out.correction = kTarget(node.row, *node.coins, node.position, options);
}

template <Criterion kCriterion>
double expected(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions& options) {
  return accepted_mass(kCriterion(row, options), q, one_hot);
}

template <Criterion kCriterion, bool kTypical>
void output_law(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions& options,
                std::vector<double>& law) {
  thread_local std::vector<double> drawn;
  thread_local std::vector<std::uint8_t> in;
  if (kTypical && !row.p->one_hot()) {
    typical_weights(row, options, law);
  } else {
    row.p->probabilities(law);
  }
  double sum = 0;
  for (const double w : law) sum += w;
  members(kCriterion(row, options), in);
  law_of_draft(row, q, one_hot, drawn);
  double accepted = 0;
  for (std::size_t x = 0; x < law.size(); ++x) accepted += in[x] != 0 ? drawn[x] : 0;
  for (std::size_t x = 0; x < law.size(); ++x) {
    law[x] = (in[x] != 0 ? drawn[x] : 0) + std::max(0.0, 1 - accepted) * law[x] / sum;
  }
}

LossClass lossy(const RuleOptions&, const SamplingParams&) {
  return LossClass::l3;
}
/// The tightest parameter leaves only the argmax: exact matching at temperature 0.
LossClass loss_beta(const RuleOptions& o, const SamplingParams& s) {
  return o.beta <= 1 && s.temperature <= 0 ? LossClass::l2 : LossClass::l3;
}
LossClass loss_gap(const RuleOptions& o, const SamplingParams& s) {
  return o.gap <= 0 && s.temperature <= 0 ? LossClass::l2 : LossClass::l3;
}

constexpr std::array<std::string_view, 1> kReadsBeta = {"beta"};
constexpr std::array<std::string_view, 1> kReadsGap = {"gap"};
constexpr std::array<std::string_view, 2> kReadsTypical = {"epsilon", "delta"};
constexpr std::array<std::string_view, 2> kReadsThreshold = {"theta", "top_k"};

const std::array<AcceptanceRule, 4> kRules = {{
    {"top_beta", "accept when x is one of the beta most probable tokens, else a token of p",
     "Stern et al. 2018 (blockwise parallel decoding), top-k selection", loss_beta, kReadsBeta,
     test<top_beta, sample_target>, sample_target, expected<top_beta>, output_law<top_beta, false>},
    {"gap", "accept when log p(best) - log p(x) <= gap, else a token of p",
     "Xia et al. 2023 (SpecDec), relaxed verification", loss_gap, kReadsGap, test<gap, sample_target>,
     sample_target, expected<gap>, output_law<gap, false>},
    {"typical", "accept when p(x) > min(epsilon, delta exp(-H(p))), else a token of p within that set",
     "Cai et al. 2024 (Medusa), typical acceptance; Hewitt et al. 2022 (eta-sampling)", lossy, kReadsTypical,
     test<typical, typical_target>, typical_target, expected<typical>, output_law<typical, true>},
    {"threshold", "accept when p(x) >= theta (and x is one of the top_k most probable), else a token of p",
     "hard threshold on the target's probability", lossy, kReadsThreshold, test<threshold, sample_target>,
     sample_target, expected<threshold>, output_law<threshold, false>},
}};

}  // namespace

std::span<const AcceptanceRule> criterion() {
  return kRules;
}

}  // namespace speclab::rules
