#pragma once

#include <cstdint>

#include "core/base/exp_log.h"

// Acceptance rules as data: what a device needs to judge a draft as core/decoding/rules/rules_*.cpp does. The
// arithmetic that host and device must share bit for bit is here once; nvcc compiles it too.

namespace speclab {

/// The algorithm of a rule.
enum class AcceptRule : std::int32_t {
  kRatio,          ///< compares a coin with f(p) / q, see RatioForm
  kExact,          ///< accepts the argmax of the row
  kSampleMatch,    ///< accepts the token that a sample of the row gives
  kCoupled,        ///< accepts the token that wins the row's Gumbel race
  kCriterion,      ///< accepts tokens that meet a condition on the row, see CriterionForm
  kEnvelope,       ///< accepts with p / (M q), M = max p / q; then a sample of the row
  kEnvelopeAgain,  ///< the same, but draws from q again until a draw is accepted
};

/// f(p) of a ratio rule: accept x ~ q with probability min(1, f(p(x)) / q(x)), else draw from norm((f(p) -
/// q)+), or from norm((p - q)+) with plain_residual. f(p) = scale * p, or p^power. f(p) = p is Leviathan et
/// al. 2023, Alg. 1. With several children p is the current residual (Miao et al. 2024, Alg. 2).
struct RatioForm {
  double scale = 1;
  double power = 1;
  bool plain_residual = false;
  bool ignore_q = false;  ///< every draft is taken as deterministic
  bool operator==(const RatioForm&) const = default;
};
/// f(p). Parameters of the rules lie in (0, 1], so f(p) >= p.
SPECLAB_EXACT double boosted(const RatioForm& form, double p) {
  return form.power == 1 ? form.scale * p : exact_power(p, form.power);
}
/// (f(p) - q)+, or (p - q)+ with plain_residual.
SPECLAB_EXACT double residual_weight(const RatioForm& form, double p, double q) {
  const double left = (form.plain_residual ? p : boosted(form, p)) - q;
  return left > 0 ? left : 0;
}

/// 1 / M of the envelope M q >= p, from the least ratio of weights q / p over the support of p and the sums
/// of both rows.
SPECLAB_EXACT double inverse_envelope_of(double least_ratio, double p_sum, double q_sum) {
  const double inverse = least_ratio * p_sum / q_sum;
  return inverse < 1 ? inverse : 1;
}
/// Probability that a token drawn from q is accepted under the envelope; inverse = 1 / M > 0.
SPECLAB_EXACT double envelope_acceptance(double p, double q, double inverse) { return inverse * p / q; }

/// Which tokens of a row a criterion rule accepts. Tokens of probability 0 are never accepted.
struct CriterionForm {
  double bar = 0;      ///< probability that a token must reach
  double of_best = 0;  ///< and the share of the best token's probability that it must reach; 1 or more: no
                       ///< other token is accepted
  /// The bar is min(bar, delta exp(-H)), H the entropy of the row; the token must be above it; a rejection
  /// draws from the accepted set.
  bool typical = false;
  double delta = 0;
  int ranks = 0;            ///< the token must be among this many most probable ones; 0: no condition
  bool always_best = true;  ///< the argmax of p is accepted in any case
  bool operator==(const CriterionForm&) const = default;
};

/// The most redraws of kEnvelopeAgain; after them it takes a sample of p. The law is p for any limit, because
/// an accepted draw has the law p however many were rejected before it. The limit keeps the time finite.
inline constexpr int kMostRedraws = 1000;

/// A rule with its options, for a device.
struct DeviceRule {
  AcceptRule rule = AcceptRule::kRatio;
  RatioForm form{};
  CriterionForm criterion{};
};

}  // namespace speclab
