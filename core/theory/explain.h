#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/measure/stats.h"
#include "core/theory/explained/resampled_values.h"
#include "core/theory/step_costs.h"

/// Explains the gap between a predicted and a measured speedup as a product of factors, called a waterfall.
/// Each factor is the effect of dropping one idealisation.
namespace speclab::theory {

/// Mean costs from a calibration: short measurements with the machine, models and context length of the case
/// that is explained. No cost comes from the lines (decoded texts) of the case. All times are in one unit.
struct Calibration {
  double t_ar = 0;  ///< a whole autoregressive step: forward over one row, sampling, bookkeeping
  RowTimes target;  ///< time of a target forward over n rows
  /// Share of a row's forward that drafting has done before the verification, for every row except the last;
  /// see RowTimes::after_drafting().
  double done_share = 0;
  double draft_token = 0;  ///< draft time per drafted token
  /// The part of a step's draft time that does not depend on the draft length: feeding tokens that the draft
  /// model has not seen yet (catching up), lookups without a match.
  double draft_step = 0;
  double accept_step = 0;  ///< time of the acceptance rule per step, without the forward
  double accept_row = 0;   ///< time of the acceptance rule per row that it reads (about tau rows a step)
  double other = 0;        ///< everything else of a speculative step
};

/// Predicts the mean times of a step from the calibration, for a case with these draft lengths and tau.
/// measured_cost_speedup and the waterfall use the result. Throws Error unless t_ar > 0 and no
/// time is negative or infinite.
StepTimes calibrated_step(const Calibration& calibration, const DraftLengths& lengths, double tau);

/// What measured the machine's speed during the lines of the case and of its reference.
enum class DriftSource {
  probes,  ///< fixed work before, during and after the lines, the same for all cases
  rounds,  ///< the calibration rounds next to the lines
  lines,   ///< older records: forwards between the steps of the lines, with as many rows as those steps
  both,    ///< more than one of these
};
std::string_view to_string(DriftSource source);  ///< "probes", "rounds", "lines", "both"

/// How much slower the machine ran during the reference's lines than during the case's lines. This is a
/// factor of the speedup.
struct Drift {
  double factor = 1;  ///< above 1: the machine was slower for the reference, which raised the speedup
  DriftSource source = DriftSource::lines;
};

/// 95 % intervals of the parts of a waterfall, by a bootstrap over prompts and calibration rounds
/// (ResampledWaterfalls).
struct WaterfallIntervals {
  std::optional<stats::Interval> unexplained = {};  ///< of unexplained_share (drift not taken out)
  std::optional<stats::Interval> residual = {};     ///< of residual_share (drift taken out)
  std::optional<stats::Interval> predicted = {}, measured = {};  ///< of these speedups
  std::map<std::string, stats::Interval> log_ratios = {};        ///< of each term's log_ratio, by its key
  std::size_t prompts = 0;                                       ///< number of prompts behind the intervals
};

/// The measured quantities of a case of chain drafts.
struct ExplainInput {
  double alpha = 0;          ///< the case's alpha as one number (alpha_mle in alpha_estimators.h)
  std::optional<int> gamma;  ///< draft length that every step asks for; absent when it varies
  DraftLengths lengths;  ///< draft lengths that occurred, see constant_draft_length and draft_length_counts
  double tau = 0;        ///< measured tokens per step
  double speedup = 0;    ///< measured
  Calibration calibration;
  /// c in the prediction that the waterfall starts from. With c = 0 the waterfall starts from Eq. 1 of
  /// Leviathan et al. 2023, which is the bound for a draft that costs nothing and t(n) = t(1). If c is the
  /// time of a draft forward / time of a target forward, the waterfall starts from Theorem 3.8 of the same
  /// paper. The term "draft cost" is then the additional draft time inside the decode loop: cold caches after
  /// a target forward, drawing tokens, catching up.
  double assumed_c = 0;
  std::optional<Drift> drift;  ///< absent when it was not measured
  WaterfallIntervals intervals;
};

/// One factor of the explanation.
struct WaterfallTerm {
  std::string key;                         ///< key in the record: "iid", "draft_cost", ...
  std::string name;                        ///< "i.i.d. assumption", "draft cost", "verification width", ...
  double factor = 1;                       ///< factor by which the term changes the speedup
  double log_ratio = 0;                    ///< log(factor); the log-ratios of all terms add up
  double speedup = 0;                      ///< predicted speedup including this term
  std::string explanation;                 ///< one line with the numbers behind it
  std::optional<stats::Interval> ci = {};  ///< 95 % interval of log_ratio
};

/// The terms of the explanation, in a fixed order. Each term replaces one idealised quantity by a measured
/// one. The log-ratios of all terms add up to log(measured / predicted). E is the mean over steps, g is the
/// draft length of a step, gamma is the draft length asked for (g when it varies), and t(n) is a time here,
/// not a ratio:
/// - predicted: E1 / (1 + c E[gamma]), with E1 = the mean of Eq. 1 at alpha and gamma (Leviathan et al. 2023)
/// - i.i.d. assumption: tau replaces E1
/// - draft cost: E[draft time of a step] replaces c E[gamma] t_ar
/// - verification width: E[t(g + 1)] replaces t(1)
/// - sampling and bookkeeping: accept + other of a speculative step replace t_ar - t(1), the time that an
///   autoregressive step takes besides its forward
/// - drift of the machine (if it was measured): the machine's speed during this case's lines and during the
///   reference's lines replaces its mean speed during the run. In older records the drift was measured by
///   forwards between the steps of the lines. There this term also contains the errors of the calibrated t(n)
///   at the numbers of rows of those steps, and the residual says little about the calibration.
/// - residual: the measured speedup replaces the modelled one. This term contains noise and everything that
///   is not calibrated.
struct Waterfall {
  std::string start;                         ///< the meaning of `predicted` in words
  std::string start_name = "leviathan_3_8";  ///< key of `predicted` in the record
  double predicted = 0;
  double measured = 0;
  std::vector<WaterfallTerm> terms;
  /// Time of a step as the calibration predicts it, at the machine's mean speed during the run. It has the
  /// unit of the calibration.
  double modelled_step = 0;
  /// (measured - modelled step time) / measured step time. Negative when the case is faster than modelled.
  double unexplained_share = 0;
  /// The unexplained share after the drift is taken out. Equal to unexplained_share when the drift was not
  /// measured.
  double residual_share = 0;
  std::optional<DriftSource> drift;
  WaterfallIntervals intervals;  ///< copied from the input
};

/// The measured quantities of a case whose steps feed more than a chain: a window of probes (lookahead
/// decoding), or a tree.
struct RowsExplainInput {
  double predicted_tau = 0;     ///< tau by a law that was not fitted to this case; 0 without a law
  std::string law;              ///< the law in words
  double tau = 0, speedup = 0;  ///< measured
  Calibration calibration;
  double drafted = 0;  ///< drafted tokens per step
  /// Entry n: number of steps with n rows that are no candidates. The pending token is one of these rows.
  DraftLengths window_rows;
  DraftLengths rows;  ///< entry n: number of steps with n rows in all
  /// Work of a step / work of a step with the same number of rows, all with logits. Below 1 when some rows
  /// have no logits.
  double equivalent_share = 1;
  std::optional<Drift> drift;  ///< as in ExplainInput
  WaterfallIntervals intervals;
};

/// Predicts the mean times of a step of such a case from the calibration.
StepTimes calibrated_rows_step(const RowsExplainInput& input);

/// Explains the gap between a prediction in which rows cost nothing and the measured speedup. The terms, in
/// this order:
/// - law (if there is one): tau replaces predicted_tau
/// - window rows (if the case has a window): E[t(window rows)] replaces t(1)
/// - drafted rows: E[t(rows)] replaces the time of the forward that the terms above use
/// - rows without logits (if there are any): the time of the equivalent number of rows with logits replaces
///   E[t(rows)]
/// - draft cost, sampling and bookkeeping, drift, residual: as in Waterfall
/// The log-ratios add up to log(measured / predicted). Throws Error like explain().
Waterfall explain_rows(const RowsExplainInput& input);

/// Explains a case of chain drafts. Throws Error for values outside their domain (tau < 1, speedup <= 0,
/// impossible times).
Waterfall explain(const ExplainInput& input);

/// Returns a table for people, without a trailing newline. It has one line per term; the drift and the
/// residual are together in one line, "residual". If the drift was measured, a second part after the line of
/// the measured speedup shows the drift and the residual separately. If the terms have intervals, a column
/// shows the intervals of the factors, and a last line says what they come from.
std::string to_text(const Waterfall& waterfall);

/// Collects the waterfalls of bootstrap resamples and gives the intervals of their parts. All waterfalls are
/// of one case, each made from drawn prompts and drawn calibration rounds.
class ResampledWaterfalls {
 public:
  void add(const Waterfall& waterfall);
  /// Adds a resample from which no waterfall can be made, for example because it has no tokens.
  void add_undefined() { values_.add_undefined(); }
  /// The intervals of the parts, for ExplainInput::intervals. A term that a resample lacks has no effect
  /// there, so its log-ratio counts as 0. `prompts`: the number of prompts of the case.
  WaterfallIntervals intervals(std::size_t prompts) const;

 private:
  ResampledValues values_;
  std::set<std::string> keys_;  ///< of the terms that occurred
};

}  // namespace speclab::theory
