#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/measure/stats.h"
#include "core/theory/lookahead.h"
#include "core/theory/step_costs.h"

/// Every named closed form that applies to what is known, for `speclab theory` and for the record's
/// `predictions`.
namespace speclab::theory {

/// c and t(n) as another calibration could have given them by chance.
struct ResampledCosts {
  double c = 0;
  RowTimes target;
};

/// Whatever is known; each formula appears when all of its inputs are there.
struct PredictionInputs {
  std::optional<double> alpha;
  std::optional<int> gamma;               ///< K in Chen et al. 2023; absent when the draft length varies
  std::optional<DraftLengths> lengths;    ///< how often each draft length occurred, when it varies
  std::optional<double> c;                ///< time of one draft step / one target step
  std::optional<double> c_hat;            ///< the same of operations
  std::optional<RowTimes> target;         ///< measured time of a target forward by rows
  std::vector<ResampledCosts> resampled;  ///< for the intervals of what is chosen by c and t(n); empty: none
  std::vector<double> acceptance;         ///< P(accept | tested) by position, [gamma]; empty = unknown
  std::optional<double> tau;              ///< measured tokens per step
  std::optional<double> speedup;          ///< measured
  std::optional<StepTimes> times;         ///< of a step, from a calibration
  std::optional<double> r;                ///< r' = tau / (gamma + 1) when tau itself is not known
  int max_gamma = 64;                     ///< range of the search for the optimal gamma
  std::optional<LookaheadShape>
      lookahead;                ///< W, N and G of lookahead decoding; alpha is of its guesses then
  std::optional<double> f;      ///< one step in f has a good guess; absent: every step (Eq. 5 alone)
  std::optional<double> share;  ///< of W in the exponent where W differs from G; absent: 1/2
};

/// What a value is to the measurement that stands for its quantity.
enum class PredictionKind {
  prediction,  ///< of the case's own measurement: the only kind that can be wrong about it
  identity,    ///< the measurement computed in another way, from the same counts: it must agree
  bound,       ///< on the measurement, or a bar that it has to reach
  optimum,     ///< of another setting than the case's: nothing in the case stands for it
};
std::string_view to_string(PredictionKind kind);  ///< "prediction", "identity", "bound", "optimum"

struct Prediction {
  std::string name;  ///< "leviathan_3_8"; stable, key of the record
  double value;
  std::string quantity;  ///< metric that it predicts: "tau", "speedup", "ops_factor", "gamma", "alpha"
  std::string equation;  ///< "(1 - alpha^(gamma+1)) / ((1 - alpha)(gamma c + 1))"
  std::string assumptions;
  PredictionKind kind = PredictionKind::prediction;
  std::optional<stats::Interval> ci;  ///< 95 %, over the resampled costs
};

/// In this order, as far as they apply:
///   leviathan_eq_1 (tau), leviathan_limit (tau), leviathan_3_8 (speedup), leviathan_3_9 (speedup),
///   leviathan_3_11_ops (ops_factor), optimal_gamma (gamma), optimal_speedup (speedup), measured_t_speedup
///   (speedup), optimal_gamma_measured_t (gamma), optimal_speedup_measured_t (speedup), positional (tau),
///   positional_speedup (speedup), mixture_eq_1 (tau), mixture_speedup (speedup), break_even (tau),
///   measured_costs (speedup), chen_ratio (speedup), chen_limit (speedup), implied_alpha_tau (alpha),
///   implied_alpha_speedup (alpha); with W, N and G: lookahead_eq5 (tau), lookahead_eq7 or
///   lookahead_eq7_extended (tau), lookahead_rows (rows_per_step), lookahead_speedup (speedup),
///   lookahead_best_W, lookahead_best_N, lookahead_best_speedup (speedup).
/// break_even is not a forecast but a bar: a step pays when tau is above it.
/// Throws Error for inputs outside their domain.
std::vector<Prediction> predictions(const PredictionInputs& inputs);

}  // namespace speclab::theory
