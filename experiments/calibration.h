#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/decoder.h"
#include "experiments/experiment.h"
#include "experiments/model_set.h"

namespace speclab {

/// Costs measured apart from the cases, for predictions (a prediction never uses the times of the
/// case that it predicts).
///
/// Forwards: target over n = 1 .. rows rows and each draft over 1 and 2, at the mean context of the run,
/// sizes interleaved, median over repeats. Steps: a short decoding of the first prompts under every case,
/// outside its lines, gives what a step costs besides the target's forward; see StepCosts. `interrupted` is
/// asked between measurements; true ends early with an empty object.
nlohmann::json calibrate(const Experiment& experiment, const ModelSet& models, Decoder& decoder,
                         const std::function<bool()>& interrupted);

/// Costs of a step besides the target's forward, fitted to steps: ns = constant + slope x count, both at
/// least 0.
struct LinearCost {
  double constant = 0, slope = 0;
};
/// Least squares through robust points (for each count the median); one count alone gives slope only, through
/// the origin unless the count is 0.
LinearCost fit_cost(const std::multimap<int, double>& samples);

}  // namespace speclab
