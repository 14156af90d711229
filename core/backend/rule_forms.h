#pragma once

#include <cstdint>

#include "core/base/exp_log.h"

// Describes acceptance rules as plain data, so that a device can verify a draft exactly as
// core/decoding/rules/rules_*.cpp does on the host. This header also holds the arithmetic on single tokens
// whose bits must be the same on host and device. Both the host's compiler and nvcc compile it, and neither
// fuses a multiplication with an addition (-ffp-contract=off and -fmad=false in CMakeLists.txt).
//
// Three tests check this arithmetic:
// - tests/decoding/rules/device_acceptance_test.cpp compares the decisions of host and simulated device.
// - tests/decoding/rows/row_kernels_test.cpp compares the vector loops of core/decoding/rows/row_kernels.h,
//   with which the host computes whole rows, with the functions below. The loops do the same operations.
// - tests/backend/rule_forms_test.cpp compares the functions with known values. A comparison of host and
//   device cannot find a wrong formula, because both use the same one.

namespace speclab {

/// The algorithm of a rule.
enum class AcceptRule : std::int32_t {
  kRatio,        ///< compares a coin (random number) with f(p) / q, see RatioForm
  kExact,        ///< accepts the argmax of the row
  kSampleMatch,  ///< accepts the token that a sample of the row gives
  kCoupled,      ///< accepts the token that coupled sampling (Gumbel noise) gives for the row
  kCriterion,    ///< accepts tokens that meet a condition on the row, see CriterionForm
  /// Accepts with probability p / (M q), where M = max p / q over all tokens. M q is called the envelope of
  /// p: it is nowhere below p. After a rejection, takes a sample of the row.
  kEnvelope,
  kEnvelopeAgain,  ///< like kEnvelope, but after a rejection draws from q again until a draw is accepted
  kPaths,          ///< judges whole paths from the leaves to the root (core/decoding/rules/rules_paths.cpp)
  kLongest,        ///< accepts the longest path whose tokens all meet a condition, see CriterionForm
  kKSeq,           ///< applies one test to all children that were drawn from the same row q, see GroupTest
  kMultiPath,      ///< chooses one of several paths and judges it as a block (core/backend/path_choice.h)
};

/// Returns y+, the larger of y and 0.
SPECLAB_EXACT double positive_part(double y) { return y > 0 ? y : 0; }

/// Returns the weight of a token in the difference of two rows of weights, (p p_factor - q q_factor)+. p and
/// q are the weights of the token. A factor turns a weight into a probability; p_factor may also contain
/// RatioForm::scale or rho. The host computes whole rows with row_kernels::positive_difference(Law, Law).
SPECLAB_EXACT double difference_weight(double p, double p_factor, double q, double q_factor) {
  return positive_part(p * p_factor - q * q_factor);
}

/// The function f(p) of a ratio rule. The rule accepts a token x ~ q with probability min(1, f(p(x)) / q(x)).
/// After a rejection it draws from norm((f(p) - q)+), or from norm((p - q)+) with plain_residual (y+: max(y,
/// 0); norm: divided by the sum). f(p) is p^power, or scale * p if power is 1. f(p) = p is Leviathan et al.
/// 2023, Alg. 1. With several children, p is the current residual (Miao et al. 2024, Alg. 2).
struct RatioForm {
  double scale = 1;
  double power = 1;
  bool plain_residual = false;
  bool ignore_q = false;   ///< treats every drafted token as one-hot
  bool any_order = false;  ///< tests the children of a node in a random order, see kFirstCoinOfOrder
  bool operator==(const RatioForm&) const = default;
};
/// Returns f(p), which is at least p, because the parameters of the ratio rules keep `power` and 1 / scale in
/// (0, 1].
SPECLAB_EXACT double boosted(const RatioForm& form, double p) {
  return form.power == 1 ? form.scale * p : exact_power(p, form.power);
}
/// Returns (f(p) - q)+, or (p - q)+ with plain_residual.
SPECLAB_EXACT double residual_weight(const RatioForm& form, double p, double q) {
  return positive_part((form.plain_residual ? p : boosted(form, p)) - q);
}

// The rules over whole paths, kPaths and kMultiPath. core/decoding/rules/rules_paths.cpp explains rho, R and
// S, and core/decoding/rules/rules_multi_path.cpp explains q'.

/// Returns rho of a child. `rho` is the rho of its parent. p and q are the probabilities of the child's token
/// under the parent's R and under the law that the token was drawn from (kMultiPath: q'). Requires q > 0.
SPECLAB_EXACT double rho_of_child(double rho, double p, double q) {
  const double product = rho * p / q;
  return product < 1 ? product : 1;
}
/// Returns (rho p - q)+, the weight of a token in the R that is left after a child failed. `rho` is the rho
/// of the node before this failure. p and q are the probabilities of the token under R and under the law of
/// the child. The host computes whole rows with row_kernels::next_residual() and
/// row_kernels::positive_difference(p, scale, q).
SPECLAB_EXACT double path_residual(double rho, double p, double q) { return positive_part(rho * p - q); }
/// Returns rho of a node after a child failed. `rho` is the rho before, and `left` is S, the sum of
/// path_residual() over all tokens. If rho is 1 and nothing is left, R equals the law of the child. Then the
/// child fails only because of rounding.
SPECLAB_EXACT double rho_after_failure(double rho, double left) {
  return left > 0 ? left / (left + (1 - rho)) : rho < 1 ? 0 : 1;
}

/// Coins decide the random order of the children of a node. This order does not change the law (distribution)
/// of the text, so the coins have the same purpose as other such choices (Purpose::simulate). Their draw
/// numbers begin at kFirstCoinOfOrder, above the numbers that strategies use. The choice among n children has
/// the number kFirstCoinOfOrder + n.
inline constexpr std::uint32_t kFirstCoinOfOrder = 0x80000000;

/// How K-SEQ tests a group of k children: it accepts x with probability min(1, p(x) / (rho q(x))).
struct GroupTest {
  double rho = 1;
  double beta = 0;   ///< P(one child is accepted): the sum over x of min(q(x), p(x) / rho)
  double share = 0;  ///< (1 - (1 - beta)^k) / beta; k if beta is 0
};
/// Returns what is left of p(x) after all children of the group failed, not normalised:
/// (p - share min(q, p / rho))+.
SPECLAB_EXACT double group_residual(const GroupTest& group, double p, double q) {
  const double divided = p / group.rho;
  return positive_part(p - (divided < q ? divided : q) * group.share);
}

/// Finds the test with the smallest rho that accepts no token x more often than p(x): share <= rho. This rho
/// lies in [1, k] and is found by bisection, up to a relative 1e-10. A larger rho is exact too, and accepts
/// less. While the search is not done(), the caller computes the sum of min(q(x), p(x) / rho()) over all
/// tokens and passes it to tell(). So host and device can each compute the sum in their own way.
class GroupSearch {
 public:
  SPECLAB_EXACT explicit GroupSearch(int count) : count_(count) {}
  SPECLAB_EXACT bool done() const { return done_; }
  SPECLAB_EXACT double rho() const { return rho_; }
  SPECLAB_EXACT void tell(double mass) {
    GroupTest tried;
    tried.rho = rho_;
    tried.beta = mass < 1 ? mass : 1;
    double all_fail = 1;
    for (int i = 0; i < count_; ++i) {
      tried.share += all_fail;
      all_fail *= 1 - tried.beta;
    }
    ++tests_;
    if (tests_ <= 2 || tried.share <= tried.rho) found_ = tried;  // the share is at most k
    else low_ = rho_;
    if (tests_ == 1) {
      rho_ = count_;
      done_ = tried.share <= 1;
      return;
    }
    rho_ = low_ + (found_.rho - low_) / 2;
    done_ = !(found_.rho - low_ > 1e-10 * low_) || rho_ <= low_ || rho_ >= found_.rho;
  }
  SPECLAB_EXACT GroupTest found() const { return found_; }

 private:
  int count_;
  int tests_ = 0;
  double rho_ = 1, low_ = 1;
  bool done_ = false;
  GroupTest found_{};
};

/// Returns 1 / M of the envelope M q >= p. A row is given by weights; a probability is a weight divided by
/// the sum of its row's weights, p_sum or q_sum. `least_ratio` is the smallest value of (weight in q) /
/// (weight in p) over the support of p.
SPECLAB_EXACT double inverse_envelope_of(double least_ratio, double p_sum, double q_sum) {
  const double inverse = least_ratio * p_sum / q_sum;
  return inverse < 1 ? inverse : 1;
}
/// Returns the probability that a token drawn from q is accepted under the envelope; inverse = 1 / M > 0.
SPECLAB_EXACT double envelope_acceptance(double p, double q, double inverse) { return inverse * p / q; }

/// Which tokens of a row a criterion rule accepts. Tokens of probability 0 are never accepted.
struct CriterionForm {
  double bar = 0;      ///< probability that a token must reach
  double of_best = 0;  ///< the token must also reach this share of the best token's probability; 1 or more:
                       ///< only the best token is accepted, see always_best
  /// If true, the bar is min(bar, delta exp(-H)), where H is the entropy of the row, and a token must be
  /// above the bar. The correction and the bonus are drawn from the tokens of the row that the rule accepts.
  bool typical = false;
  double delta = 0;
  int ranks = 0;            ///< the token must be among this many most probable ones; 0: no condition
  bool always_best = true;  ///< the argmax of p is accepted in any case
  /// The id of the token must differ by at most this from the id of the argmax of p; -1: no condition. Only
  /// with always_best.
  int nearby = -1;
  int untested = 0;  ///< children of nodes of a smaller depth need none of these conditions; see at_depth()
  bool operator==(const CriterionForm&) const = default;
};
/// True if a token meets the condition CriterionForm::nearby. `best` is the argmax of p.
SPECLAB_EXACT bool is_nearby(const CriterionForm& form, int best, int token) {
  const std::int64_t apart = std::int64_t{token} - best;
  return form.nearby < 0 || (apart <= form.nearby && -apart <= form.nearby);
}
/// Returns the conditions for the children of a node of this depth. The pending token has depth 0.
SPECLAB_EXACT CriterionForm at_depth(const CriterionForm& form, int depth) {
  return depth < form.untested ? CriterionForm{} : form;
}
/// True if weight_to_reach() needs the weight of the row's best token.
SPECLAB_EXACT bool compares_with_best(const CriterionForm& form) {
  return form.of_best > 0 && form.of_best < 1;
}
/// Returns the weight that a token must reach in the row that the criterion looks at. If form.typical is set,
/// the weight of the token must be larger than this. It is a weight and not a probability, so that the test
/// of one token and the mass of the whole set use the same comparison. `entropy` is the entropy of the row in
/// nats. It is used only if form.typical is set. `sum` is the sum of the row's weights. `best` is the largest
/// of them. It is used only if compares_with_best().
SPECLAB_EXACT double weight_to_reach(const CriterionForm& form, double entropy, double sum, double best) {
  constexpr double kUnreachable = 1e300;  // weights are floats or at most 1, so none is as large
  if (form.of_best >= 1) return kUnreachable;
  double least = form.bar;
  if (form.typical) {
    const double spread = form.delta * exact_exp(-entropy);
    if (spread < least) least = spread;
  }
  const double bar = least * sum;
  if (!compares_with_best(form)) return bar;
  const double share = form.of_best * best;
  return bar < share ? share : bar;
}
/// True if a token of this weight meets the conditions on its weight and on its id. The condition on its rank
/// is not tested here. `bar` is weight_to_reach(). `best` is the argmax of p; -1 without always_best.
SPECLAB_EXACT bool meets_criterion(const CriterionForm& form, double bar, int best, int token,
                                   double weight) {
  return weight > 0 && (form.typical ? weight > bar : weight >= bar) && is_nearby(form, best, token);
}
/// Returns log p of an accepted token. kLongest adds these logarithms along a path. A p below the smallest
/// normal number is replaced by this number. p can be 0, because the argmax of p is accepted even if the raw
/// row gives it no mass.
SPECLAB_EXACT double log_of_accepted(double p) {
  constexpr double kSmallest = 2.2250738585072014e-308;  // the smallest normal number
  return exact_log(p > kSmallest ? p : kSmallest);
}

/// Largest number of redraws of kEnvelopeAgain after one rejection. If all of them are rejected, the rule
/// takes a sample of p. The law of the token is p for any limit, because an accepted draw has the law p
/// however many draws were rejected before it. The limit keeps the time finite.
inline constexpr int kMostRedraws = 1000;

/// A rule with its options, for a device.
struct DeviceRule {
  AcceptRule rule = AcceptRule::kRatio;
  RatioForm form{};
  CriterionForm criterion{};
};

}  // namespace speclab
