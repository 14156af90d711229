#pragma once

#include <map>
#include <span>
#include <vector>

#include "core/theory/chain.h"

/// Predicts speedups from measurements: cost by number of rows, acceptance by position, varying draft
/// lengths. These forms drop the assumptions of the i.i.d. forms in chain.h one by one. Times may have any
/// unit, but all the same.
namespace speclab::theory {

/// Time of a target forward over n rows, measured at some n and linear between them. Beyond the last measured
/// n the last slope continues, unless it falls: then the time stays constant. A single point is Leviathan's
/// assumption t(n) = t(1).
class RowTimes {
 public:
  /// t(n) = t for every n.
  explicit RowTimes(double t = 1);
  /// From measured times by n. Throws Error unless n = 1 is among them and all times are positive.
  explicit RowTimes(std::map<int, double> times);

  double at(int rows) const;                                 ///< rows >= 1
  double ratio(int rows) const { return at(rows) / at(1); }  ///< t(n) in units of t(1), as in the glossary
  bool flat() const { return times_.size() == 1; }
  int largest_measured() const { return times_.rbegin()->first; }
  /// The non-decreasing times that fit these best in least squares (pool adjacent violators, Ayer et al.
  /// 1955). A search for the best number of rows uses them, so that it does not pick an n whose few samples
  /// were fast by luck.
  RowTimes monotone() const;

 private:
  std::map<int, double> times_;
};

/// E[tau] = 1 + sum_{i=1}^{gamma} prod_{j<=i} a_j with a_i = P(accept i | i tested). An identity that needs
/// no i.i.d. assumption. Exact for the measured a_i of a run in which every step drafts gamma tokens and no
/// step is cut by an end of text.
double positional_expected_tokens(std::span<const double> acceptance);  // [gamma]

/// How often each draft length g = 0, 1, 2, ... occurs. Any positive scale, for example counts. Lengths vary
/// with a schedule, and with a copying drafter that does not always find a match.
using DraftLengths = std::vector<double>;  // [largest gamma + 1]
/// All of the weight at one gamma.
DraftLengths constant_draft_length(int gamma);
double mean_draft_length(const DraftLengths& lengths);

/// E[tau] for a mixture of draft lengths: the mean over steps of Eq. 1 at the step's gamma.
double mixture_expected_tokens(double alpha, const DraftLengths& lengths);

/// Speedup for a mixture: sum tau / sum (t(gamma_i + 1) + gamma_i c) over its
/// steps. c is relative to target.at(1).
double mixture_speedup(double alpha, double c, const DraftLengths& lengths, const RowTimes& target);

/// The integer gamma <= max_gamma that maximises E[tau] / (gamma c + t(gamma + 1)), with t(n) =
/// target.monotone(). With a kinked t(n) the objective may have several maxima, so all gammas are tried. Ties
/// go to the smaller gamma.
OptimalGamma optimal_gamma_at_costs(double alpha, double c, const RowTimes& target, int max_gamma);

/// The same with the positional identity in place of Eq. 1. gamma is at most the number of known positions.
OptimalGamma optimal_gamma_positional(std::span<const double> acceptance, double c, const RowTimes& target);

/// Mean times of one step. t_ar is a whole autoregressive step (forward, sampling and bookkeeping).
struct StepTimes {
  double t_ar = 0;
  double draft = 0;   ///< all draft calls of the step
  double target = 0;  ///< the verifying forward
  double accept = 0;
  double other = 0;
  double total() const { return draft + target + accept + other; }
};

/// Speedup from measured costs: S = tau t_ar / (draft + target + accept + other).
/// Assumes nothing about acceptance.
double measured_cost_speedup(double tau, const StepTimes& times);

/// r' as in reports that follow Chen et al. 2023: emitted tokens per step / their largest number, tau / (K +
/// 1). It is not alpha: K = 4 and r' = .8 correspond to alpha = .888.
double chen_r(double tau, int k);

/// S = r'(K + 1) t_t / (K t_d + t_t).
double chen_ratio(double r, int k, double t_draft, double t_target);

/// Its limit for t_d -> 0: r'(K + 1) = tau.
double chen_limit(double r, int k);

/// Lookahead decoding (Fu et al. 2024, Eq. 4 and 7). There are `branches` parallel guesses of `length`
/// tokens, and each token is accepted with probability alpha independently: E = (length + 1) -
/// sum_{i=1}^{length} (1 - alpha^i)^branches. With one branch this is Eq. 1. If one step in f has a good
/// guess, the step compression is S = (f - 1 + E) / f.
double lookahead_expected_tokens(double alpha, int length, double branches);
double lookahead_step_compression(double expected_tokens, double f);

}  // namespace speclab::theory
