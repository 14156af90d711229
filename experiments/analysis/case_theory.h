#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "core/theory/explain.h"
#include "core/theory/predictions.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// Inputs of the closed forms for one case: acceptance from its own steps, costs from the calibration
/// only. Absent when nothing was drafted.
std::optional<theory::PredictionInputs> prediction_inputs(const CaseData& data,
                                                          const nlohmann::json& metrics);
/// summary.json's "predictions" of a case; an empty object when nothing applies.
nlohmann::json case_predictions(const CaseData& data, const nlohmann::json& metrics);

/// From the i.i.d. prediction (Theorem 3.8 at the calibrated c) to the measured speedup; where steps feed
/// probes or branching drafts, from tokens per step and free rows (theory::explain_rows), those of the law of
/// lookahead decoding where `fits` (lookahead_fits) holds the case. Absent without calibration, drafts or
/// speedup.
std::optional<theory::Waterfall> case_waterfall(const CaseData& data, const nlohmann::json& metrics,
                                                const nlohmann::json& fits = nlohmann::json::array());
/// summary.json's "waterfall": the prediction first, the measurement last.
nlohmann::json waterfall_json(const theory::Waterfall& waterfall);

}  // namespace speclab
