#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/measure/stats.h"
#include "core/theory/step_costs.h"

/// From a predicted to a measured speedup in five factors, each the effect of dropping one idealisation.
namespace speclab::theory {

/// Mean costs from a calibration run on the same machine, model and context length: never the times of the
/// case that is explained. All in one unit.
struct Calibration {
  double t_ar = 0;         ///< one whole autoregressive step: forward over one row, sampling, bookkeeping
  RowTimes target;         ///< forward of the target over n rows
  double draft_token = 0;  ///< draft time per drafted token ...
  double draft_step = 0;   ///< ... and per step, whatever it drafts (catching up, looking up in vain)
  double accept_step = 0;  ///< verification without the forward, per step ...
  double accept_row = 0;   ///< ... and per row that the verifier reads (about tau rows a step)
  double other = 0;        ///< everything else of a speculative step
};

/// Mean times of a step by calibration: what measured_cost_speedup and the waterfall take for a case with
/// these draft lengths and tau. Throws Error for negative or infinite times.
StepTimes calibrated_step(const Calibration& calibration, const DraftLengths& lengths, double tau);

/// By what the machine's speed during the lines of the case and of its baseline was measured.
enum class DriftSource {
  lines,   ///< forwards of as many rows as theirs, timed between their steps
  rounds,  ///< the calibration's rounds next to them
  both,    ///< some lines have the first, the others the second
};
std::string_view to_string(DriftSource source);  ///< "lines", "rounds", "both"

/// How much slower the machine was during the baseline's lines than during those of the case: a factor of the
/// speedup.
struct Drift {
  double factor = 1;
  DriftSource source = DriftSource::lines;
};

/// What noise alone does to the unexplained shares: 95 % intervals over drawn prompts and calibration rounds.
struct ResidualIntervals {
  std::optional<stats::Interval> unexplained;  ///< without the drift
  std::optional<stats::Interval> residual;     ///< with it
  std::size_t prompts = 0;                     ///< that were drawn from
};

struct ExplainInput {
  double alpha = 0;          ///< of the case, as one number (alpha_mle)
  std::optional<int> gamma;  ///< draft length that every step asks for; absent: it varies
  DraftLengths lengths;  ///< draft lengths as they were, see constant_draft_length and draft_length_counts
  double tau = 0;        ///< measured tokens per step
  double speedup = 0;    ///< measured
  Calibration calibration;
  /// c in the prediction that the waterfall starts from. 0: Eq. 1 itself, the bound for a free draft and t(n)
  /// = t(1). With the draft's forward alone over the target's it starts from Theorem 3.8, and "draft cost" is
  /// what a draft takes beyond that inside the loop: cold caches after a target forward, drawing tokens,
  /// catching up.
  double assumed_c = 0;
  std::optional<Drift> drift;  ///< absent where it was not measured
  ResidualIntervals intervals;
};

struct WaterfallTerm {
  std::string key;          ///< of the record: "iid", "draft_cost", ...
  std::string name;         ///< "i.i.d. assumption", "draft cost", "verification width", ...
  double factor = 1;        ///< what the term multiplies the speedup by
  double log_ratio = 0;     ///< log(factor); these add up
  double speedup = 0;       ///< predicted speedup once this term is known
  std::string explanation;  ///< one line with the numbers behind it
};

/// Terms in fixed order: i.i.d. assumption, draft cost, verification width, sampling and bookkeeping, drift
/// of the machine (where it was measured), residual. Their log-ratios add up to log(measured / predicted). E
/// is over steps, g the draft length of a step, gamma the one asked for (g where it varies):
/// - predicted: E1 / (1 + c E[gamma]), E1 = Eq. 1 at alpha over gamma (Leviathan et al. 2023)
/// - i.i.d. assumption: tau for E1
/// - draft cost: E[draft time of a step] for c E[gamma] t_ar
/// - verification width: E[t(g + 1)] for t(1)
/// - sampling and bookkeeping: accept + other of a speculative step for t_ar - t(1), those of an
///   autoregressive one
/// - drift: the seconds of this case's lines for the mean of the run, on both sides of the ratio. Measured by
/// forwards
///   between the steps of the lines, it also takes in what t(n) of the calibration got wrong about those
///   rows, so the residual behind it says little about the calibration: quote `unexplained_share` first.
/// - residual: the measured speedup for this model; noise, whatever nobody calibrated
struct Waterfall {
  std::string start;                         ///< what `predicted` is, in words
  std::string start_name = "leviathan_3_8";  ///< the same as a key of the record
  double predicted = 0;
  double measured = 0;
  std::vector<WaterfallTerm> terms;
  double modelled_step = 0;  ///< time of a step by calibration, its unit, on the mean machine of the run
  /// (measured - modelled step time) / measured step time; negative: faster than modelled.
  double unexplained_share = 0;
  /// The same with the drift set aside; equal to it where the drift was not measured.
  double residual_share = 0;
  std::optional<DriftSource> drift;
  ResidualIntervals intervals;  ///< as handed over
};

/// Steps that feed more than a chain of drafted tokens: a window of probes (lookahead decoding), trees.
struct RowsExplainInput {
  double predicted_tau = 0;     ///< of a law that has not seen tau; 0: there is none
  std::string law;              ///< that law in words
  double tau = 0, speedup = 0;  ///< measured
  Calibration calibration;
  double drafted = 0;        ///< drafted tokens per step
  DraftLengths window_rows;  ///< how many steps fed so many rows besides candidates (the pending token
                             ///< counts), by rows
  DraftLengths rows;         ///< how many steps fed so many rows in all
  /// Rows with logits that are as much work as a step, over its rows: below 1 where rows have no logits.
  double equivalent_share = 1;
  std::optional<Drift> drift;  ///< as in ExplainInput
  ResidualIntervals intervals;
};

/// Mean times of such a step by calibration.
StepTimes calibrated_rows_step(const RowsExplainInput& input);

/// From "rows cost nothing" to the measured speedup: law (tau for predicted_tau; only where there is one),
/// window rows (E[t(window rows)] for t(1); only where there are any), drafted rows (E[t(rows)] for that),
/// rows without logits (t at the equivalent rows; only where there are any), draft cost, sampling and
/// bookkeeping, drift, residual. Log-ratios add up to log(measured / predicted). Throws Error as explain().
Waterfall explain_rows(const RowsExplainInput& input);

/// Throws Error for values outside their domain (tau < 1, speedup <= 0, times that cannot be).
Waterfall explain(const ExplainInput& input);

/// A table for people, no trailing newline: one line per term, with all of the residual in one term; behind
/// the measured speedup a second reading, in which the drift takes its part of it.
std::string to_text(const Waterfall& waterfall);

}  // namespace speclab::theory
