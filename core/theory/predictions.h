#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/measure/stats.h"
#include "core/theory/lookahead.h"
#include "core/theory/step_costs.h"

/// Computes every named closed form whose inputs are known, for `speclab theory` and
/// for `predictions` in the record.
namespace speclab::theory {

/// c and t(n) of one bootstrap resample of the calibration.
struct ResampledCosts {
  double c = 0;
  RowTimes target;
};

/// The quantities that are known. A formula is computed when all of its inputs are known.
struct PredictionInputs {
  std::optional<double> alpha;
  std::optional<int> gamma;             ///< K in Chen et al. 2023; absent when the draft length varies
  std::optional<DraftLengths> lengths;  ///< how often each draft length occurred, when it varies
  /// Time of the draft model's forwards for one drafted token / time of a target forward over one row.
  std::optional<double> c;
  std::optional<double> c_hat;     ///< operations per token, draft / target
  std::optional<RowTimes> target;  ///< measured time of a target forward by number of rows
  /// Resamples of the calibration, for the intervals of optimal_gamma_measured_t and
  /// optimal_speedup_measured_t. With fewer than two there are no intervals.
  std::vector<ResampledCosts> resampled;
  std::vector<double> acceptance;  ///< P(accept | tested) by position, [gamma]; empty = unknown
  std::optional<double> tau;       ///< measured tokens per step
  std::optional<double> speedup;   ///< measured
  std::optional<StepTimes> times;  ///< times of a step, from a calibration
  std::optional<double> r;         ///< r' = tau / (gamma + 1), if tau itself is not known
  int max_gamma = 64;              ///< largest gamma that the search for the optimal gamma tries
  /// Setting of lookahead decoding; `alpha` is then the acceptance of a token of a guess.
  std::optional<LookaheadShape> lookahead;
  /// One step in f has a good guess (Fu et al. 2024, Eq. 7). Absent: every step has one (Eq. 5).
  std::optional<double> f;
  std::optional<double> share;  ///< exponent of W in LookaheadLaw when W differs from G; absent: 1/2
};

/// How a value relates to the case's measurement of the same quantity.
enum class PredictionKind {
  prediction,  ///< predicts the measurement; only this kind can be wrong
  identity,    ///< is computed from the same counts as the measurement, so the two must agree
  bound,       ///< bounds the measurement, or is a bar that it must reach
  optimum,     ///< belongs to another setting, so the case has no measurement of it
  what_if,     ///< prediction with another value of one quantity (explained/sensitivity.h); not measured
};
std::string_view to_string(PredictionKind kind);  ///< "prediction", "identity", "bound", "optimum", "what_if"

/// The value of one formula.
struct Prediction {
  std::string name;  ///< key in the record, "leviathan_3_8"; it never changes
  double value;
  std::string quantity;  ///< the metric: "tau", "speedup", "ops_factor", "gamma", "alpha"
  std::string equation;  ///< "(1 - alpha^(gamma+1)) / ((1 - alpha)(gamma c + 1))"
  std::string assumptions;
  PredictionKind kind = PredictionKind::prediction;
  std::optional<stats::Interval> ci;  ///< 95 % interval over resampled costs; what-ifs: over prompts too
};

/// Computes the formulas that apply, in this order. The word in parentheses is Prediction::quantity:
///   leviathan_eq_1 (tau), leviathan_limit (tau), leviathan_3_8 (speedup), leviathan_3_9 (speedup),
///   leviathan_3_11_ops (ops_factor), optimal_gamma (gamma), optimal_speedup (speedup), measured_t_speedup
///   (speedup), optimal_gamma_measured_t (gamma), optimal_speedup_measured_t (speedup), positional (tau),
///   positional_speedup (speedup), mixture_eq_1 (tau), mixture_speedup (speedup), break_even (tau),
///   measured_costs (speedup), chen_ratio (speedup), chen_limit (speedup), implied_alpha_tau (alpha),
///   implied_alpha_speedup (alpha); with W, N and G: lookahead_eq5 (tau), lookahead_eq7 or
///   lookahead_eq7_extended (tau), lookahead_rows (rows_per_step), lookahead_speedup (speedup),
///   lookahead_best_W (W), lookahead_best_N (N), lookahead_best_speedup (speedup).
/// break_even is a bar, not a forecast: steps save time when tau is above it. Throws Error
/// for inputs outside their domain.
std::vector<Prediction> predictions(const PredictionInputs& inputs);

}  // namespace speclab::theory
