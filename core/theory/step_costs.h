#pragma once

#include <map>
#include <span>
#include <vector>

#include "core/theory/chain.h"

/// Speedup from what was really measured: costs of rows, acceptance by position, draft lengths that vary.
/// These drop, one by one, the assumptions of the i.i.d. forms in chain.h. Times are in any one unit
/// throughout.
namespace speclab::theory {

/// Time of a target forward over n rows, measured at some n and linear between them; beyond the last measured
/// n the last slope goes on (never downwards). One point alone is Leviathan's assumption t(n) = t(1).
class RowTimes {
 public:
  /// t(n) = t for every n.
  explicit RowTimes(double t = 1);
  /// n -> time. Must hold n = 1; times positive. Throws Error otherwise.
  explicit RowTimes(std::map<int, double> times);

  double at(int rows) const;                                 ///< rows >= 1
  double ratio(int rows) const { return at(rows) / at(1); }  ///< t(n) of the glossary
  bool flat() const { return times_.size() == 1; }
  int largest_measured() const { return times_.rbegin()->first; }
  /// The non-decreasing times nearest to these in least squares (pool adjacent violators, Ayer et al. 1955):
  /// a search for the best number of rows must not find the one whose few samples were lucky.
  RowTimes monotone() const;

 private:
  std::map<int, double> times_;
};

/// Identity, no i.i.d. needed: E[tau] = 1 + sum_{i=1}^{gamma} prod_{j<=i} a_j with a_i = P(accept i | i
/// tested). Exact for the measured a_i of a run in which every step drafts gamma tokens and none is cut by an
/// end of text.
double positional_expected_tokens(std::span<const double> acceptance);  // [gamma]

/// How often each draft length occurs: weight[g] for g = 0, 1, 2, ... Any positive scale (counts will do).
/// A copying drafter that finds nothing, or a schedule, makes a mixture of lengths.
using DraftLengths = std::vector<double>;  // [largest gamma + 1]
/// All of the weight at one gamma.
DraftLengths constant_draft_length(int gamma);
double mean_draft_length(const DraftLengths& lengths);

/// E[tau] of a mixture of draft lengths: mean over steps of Eq. 1 at that step's gamma.
double mixture_expected_tokens(double alpha, const DraftLengths& lengths);

/// sum tau / sum (t(gamma_i + 1) + gamma_i c) over the steps of a mixture. c relative to target.at(1).
double mixture_speedup(double alpha, double c, const DraftLengths& lengths, const RowTimes& target);

/// The integer gamma <= max_gamma that maximises E[tau] / (gamma c + t(gamma + 1)) for the monotone fit of a
/// measured t(n): measured as it is, one lucky sample would be chosen. With a kinked t(n) the objective need
/// not be unimodal, so all are tried. Ties go to the smaller gamma.
OptimalGamma optimal_gamma_at_costs(double alpha, double c, const RowTimes& target, int max_gamma);

/// The same with the positional identity in place of Eq. 1; gamma goes up to the number of known positions.
OptimalGamma optimal_gamma_positional(std::span<const double> acceptance, double c, const RowTimes& target);

/// Mean times of one step. t_ar is one whole autoregressive step (forward, sampling and bookkeeping).
struct StepTimes {
  double t_ar = 0;
  double draft = 0;   ///< all draft calls of the step
  double target = 0;  ///< the verifying forward
  double accept = 0;
  double other = 0;
  double total() const { return draft + target + accept + other; }
};

/// The measured-cost formula: S = tau t_ar / (draft + target + accept + other). No assumption about
/// acceptance.
double measured_cost_speedup(double tau, const StepTimes& times);

/// r' of GPT-2 style reports after Chen et al. 2023: emitted tokens per step over their largest number,
/// tau / (K + 1). It is not alpha: K = 4, r' = .8 belongs to alpha = .888.
double chen_r(double tau, int k);

/// S = r'(K + 1) t_t / (K t_d + t_t).
double chen_ratio(double r, int k, double t_draft, double t_target);

/// Its limit for t_d -> 0: r'(K + 1) = tau.
double chen_limit(double r, int k);

/// Lookahead decoding (Fu et al. 2024, Eq. 4 and 7): `branches` parallel guesses of `length` tokens, each
/// token accepted with alpha independently: E = (length + 1) - sum_{i=1}^{length} (1 - alpha^i)^branches; Eq.
/// 1 at one branch. A good guess exists in one step of f: step compression S = (f - 1 + E) / f.
double lookahead_expected_tokens(double alpha, int length, double branches);
double lookahead_step_compression(double expected_tokens, double f);

}  // namespace speclab::theory
