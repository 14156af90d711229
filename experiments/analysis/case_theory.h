#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "core/theory/predictions.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// Computes the inputs of the closed forms for one case. Acceptance comes from the steps of the case, and
/// costs come from the calibration alone. There is no alpha if the rule judges whole paths. Absent when
/// nothing was drafted or tested, when a draft branches, and when a step feeds probes.
std::optional<theory::PredictionInputs> prediction_inputs(const CaseData& data,
                                                          const nlohmann::json& metrics);
/// An entry of "predictions": the predicted value and the measured metric. An optimum and a what-if have no
/// measurement.
nlohmann::json prediction_json(const theory::Prediction& prediction, const nlohmann::json& metrics);
/// "predictions" of a case in summary.json; an empty object when no closed form applies, and when a measured
/// value is outside the domain of a formula.
nlohmann::json case_predictions(const CaseData& data, const nlohmann::json& metrics);

}  // namespace speclab
