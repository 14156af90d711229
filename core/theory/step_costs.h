#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/theory/chain.h"

/// Predicts speedups from measured quantities: the cost by number of rows, the acceptance by position, and
/// draft lengths that vary. These forms drop the assumptions of the i.i.d. forms in chain.h one by one. Times
/// may have any unit, but all times that are used together must have the same unit.
namespace speclab::theory {

/// The time of a number of rows that need not be whole, such as a mean: linear between the times of the whole
/// numbers beside it. `time(n)` is the time of n rows. All predictions with mean numbers of rows use this
/// function. rows >= 1.
template <class Time>
double between_whole_rows(double rows, const Time& time) {
  const int below = static_cast<int>(rows);
  const double rest = rows - below;
  const double lower = time(below);
  return rest > 0 ? (1 - rest) * lower + rest * time(below + 1) : lower;
}

/// Time of a target forward over n rows, measured at some n and linear between them. Beyond the last measured
/// n the last slope continues; if that slope is negative, the time stays constant. A single point is
/// Leviathan's assumption t(n) = t(1).
class RowTimes {
 public:
  /// t(n) = t for every n.
  explicit RowTimes(double t = 1);
  /// Takes measured times by n. Throws Error unless n = 1 is the smallest n and all times are positive.
  explicit RowTimes(std::map<int, double> times);

  double at(int rows) const;                                 ///< rows >= 1
  double at_mean(double rows) const;                         ///< rows >= 1, see between_whole_rows()
  double ratio(int rows) const { return at(rows) / at(1); }  ///< t(n) in units of t(1), as in the glossary
  bool flat() const { return times_.size() == 1; }
  int largest_measured() const { return times_.rbegin()->first; }
  /// The non-decreasing times that fit these best in least squares (pool adjacent violators, Ayer et al.
  /// 1955). A search for the best number of rows uses them, so that it does not pick an n whose few samples
  /// were fast by luck.
  RowTimes monotone() const;
  /// Times of a verification if drafting has already done `share` of the forward of every row except the
  /// last. An early exit drafts with the first layers, and the verifying forward runs only the others. The
  /// last drafted token was not fed while drafting, so its row needs all layers: share t(1) + (1 - share)
  /// t(n). The formula assumes that `share` of a forward's work also takes `share` of its time.
  RowTimes after_drafting(double share) const;

 private:
  std::map<int, double> times_;
};

/// E[tau] = 1 + sum_{i=1}^{gamma} prod_{j<=i} a_j with a_i = P(accept token i | it is tested). This identity
/// needs no i.i.d. assumption. It is exact for the measured a_i of a run in which every step drafts gamma
/// tokens and no step is cut by an end of text.
double positional_expected_tokens(std::span<const double> acceptance);  // [gamma]

/// How often each draft length g = 0, 1, 2, ... occurs. The numbers may have any positive scale, for example
/// counts of steps. Lengths vary with a schedule, and with a drafter that copies and does not always find a
/// match.
using DraftLengths = std::vector<double>;  // [largest gamma + 1]
/// Every step drafts gamma tokens.
DraftLengths constant_draft_length(int gamma);
double mean_draft_length(const DraftLengths& lengths);

/// E[tau] for a mixture of draft lengths: the mean over steps of Eq. 1 (expected_tokens) at the step's gamma.
double mixture_expected_tokens(double alpha, const DraftLengths& lengths);

/// Speedup for a mixture of draft lengths: sum_i tau_i / sum_i (t(gamma_i + 1) + gamma_i c) over the steps i,
/// with tau_i = Eq. 1 at gamma_i. t and c are in units of target.at(1).
double mixture_speedup(double alpha, double c, const DraftLengths& lengths, const RowTimes& target);

/// The integer gamma <= max_gamma that maximises E[tau] / (gamma c + t(gamma + 1)), with t(n) =
/// target.monotone(). If the slope of t(n) jumps, the objective may have several maxima, so all gammas are
/// tried. Ties go to the smaller gamma. `at_limit` is true if the result is max_gamma > 0.
OptimalGamma optimal_gamma_at_costs(double alpha, double c, const RowTimes& target, int max_gamma);

/// Finds the best gamma as optimal_gamma_at_costs() does, but with the positional identity
/// (positional_expected_tokens) instead of Eq. 1. gamma is at most the number of known positions; `at_limit`
/// is true if gamma is this number.
OptimalGamma optimal_gamma_positional(std::span<const double> acceptance, double c, const RowTimes& target);

/// The alpha below which no chain of at most max_gamma tokens saves time, if all tokens had the same alpha.
/// Absent if none would save time even at alpha 1.
std::optional<double> break_even_alpha(double c, const RowTimes& target, int max_gamma);

/// Mean times of one speculative step, and of an autoregressive step to compare with.
struct StepTimes {
  double t_ar = 0;    ///< a whole autoregressive step: forward, sampling and bookkeeping
  double draft = 0;   ///< all draft calls of the step
  double target = 0;  ///< the target forward that verifies the draft
  double accept = 0;
  double other = 0;
  double total() const { return draft + target + accept + other; }
};

/// Speedup from measured costs: S = tau t_ar / (draft + target + accept + other).
/// Assumes nothing about acceptance.
double measured_cost_speedup(double tau, const StepTimes& times);

/// r' as in reports that follow Chen et al. 2023: emitted tokens per step / the largest possible number, tau
/// / (K + 1). It is not alpha: K = 4 and r' = .8 correspond to alpha = .888.
double chen_r(double tau, int k);

/// The speedup in the form of such reports: S = r'(K + 1) t_t / (K t_d + t_t), with the times t_d of a draft
/// forward and t_t of a target forward.
double chen_ratio(double r, int k, double t_draft, double t_target);

/// Limit of chen_ratio for t_d -> 0: r'(K + 1) = tau.
double chen_limit(double r, int k);

/// Lookahead decoding (Fu et al. 2024, Eq. 5 and 7). There are `branches` parallel guesses of `length`
/// tokens, and each token is accepted with probability alpha independently: E = (length + 1) -
/// sum_{i=1}^{length} (1 - alpha^i)^branches. With one branch this is Eq. 1 of Leviathan et al. 2023. If one
/// step in f has a good guess, the step compression is S = (f - 1 + E) / f.
double lookahead_expected_tokens(double alpha, int length, double branches);
double lookahead_step_compression(double expected_tokens, double f);

}  // namespace speclab::theory
