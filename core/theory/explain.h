#pragma once

#include <optional>
#include <string>
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

struct ExplainInput {
  double alpha = 0;      ///< of the case, as one number (alpha_mle)
  DraftLengths lengths;  ///< draft lengths of the case, see constant_draft_length and draft_length_counts
  double tau = 0;        ///< measured tokens per step
  double speedup = 0;    ///< measured
  Calibration calibration;
  /// c in the prediction that the waterfall starts from. 0: Eq. 1 itself, the bound for a free draft and t(n)
  /// = t(1). With the draft's forward alone over the target's it starts from Theorem 3.8, and "draft cost" is
  /// what a draft takes beyond that inside the loop: cold caches after a target forward, drawing tokens,
  /// catching up.
  double assumed_c = 0;
  /// How much slower the machine was during the baseline's lines than during those of the case, by the calibration's forwards
  /// between their steps or in the rounds next to them: a factor of the speedup. Absent where nobody knows.
  std::optional<double> machine_drift;
  /// What noise alone does to residual_share: its 95 % interval over drawn prompts and calibration rounds.
  std::optional<stats::Interval> residual_ci95;
};

struct WaterfallTerm {
  std::string name;         ///< "i.i.d. assumption", "draft cost", "verification width", ...
  double factor = 1;        ///< what the term multiplies the speedup by
  double log_ratio = 0;     ///< log(factor); these add up
  double speedup = 0;       ///< predicted speedup once this term is known
  std::string explanation;  ///< one line with the numbers behind it
};

/// Terms in fixed order: i.i.d. assumption, draft cost, verification width, sampling and bookkeeping,
/// machine drift (where it is known), residual. Their log-ratios add up to log(measured / predicted). With g the draft length, E over steps:
/// - predicted: E1 / (1 + c E[g]), E1 = Eq. 1 at alpha over the draft lengths (Leviathan et al. 2023)
/// - i.i.d. assumption: tau for E1
/// - draft cost: E[draft time of a step] for c E[g] t_ar
/// - verification width: E[t(g + 1)] for t(1)
/// - sampling and bookkeeping: accept + other of a speculative step for t_ar - t(1), those of an
///   autoregressive one
/// - machine drift: the seconds of this case's lines for the mean of the run, on both sides of the ratio
/// - residual: the measured speedup for this model; noise, whatever nobody calibrated
struct Waterfall {
  std::string start;                         ///< what `predicted` is, in words
  std::string start_name = "leviathan_3_8";  ///< the same as a key of the record
  double predicted = 0;
  double measured = 0;
  std::vector<WaterfallTerm> terms;
  double modelled_step = 0;  ///< time of a step by calibration, its unit, on the mean machine of the run
  /// (measured - modelled step time) / measured step time, drift set aside; negative: faster than modelled.
  double residual_share = 0;
  std::optional<stats::Interval> residual_ci95;  ///< as handed over
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
  std::optional<double> machine_drift;  ///< as in ExplainInput
  std::optional<stats::Interval> residual_ci95;
};

/// Mean times of such a step by calibration.
StepTimes calibrated_rows_step(const RowsExplainInput& input);

/// From "rows cost nothing" to the measured speedup: law (tau for predicted_tau; only where there is one),
/// window rows (E[t(window rows)] for t(1); only where there are any), drafted rows (E[t(rows)] for that),
/// rows without logits (t at the equivalent rows; only where there are any), draft cost, sampling and
/// bookkeeping, machine drift, residual. Log-ratios add up to log(measured / predicted). Throws Error as explain().
Waterfall explain_rows(const RowsExplainInput& input);

/// Throws Error for values outside their domain (tau < 1, speedup <= 0, times that cannot be).
Waterfall explain(const ExplainInput& input);

/// A table for people, one line per term, no trailing newline.
std::string to_text(const Waterfall& waterfall);

}  // namespace speclab::theory
