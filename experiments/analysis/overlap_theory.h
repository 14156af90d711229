#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/theory/predictions.h"
#include "experiments/metrics/run_data.h"

/// The law of the timeline of cases that draft ahead (StrategyInfo::drafts_ahead), beside the measured times.
namespace speclab {

/// Predictions from costs that the calibration measured while both models worked (OverlapTimer):
///   post_verify_iid (ms_per_token): simulate::post_verify_token_time() with the alpha and gamma of the case
///   post_verify (ms_per_token), post_verify_speedup (speedup): the same timeline, step by step. Which steps
///     drafted anew, how many rows each one verified and how many forwards ran beside it are those of repeat
///     0. The rule and the bookkeeping take time here, too.
/// Empty for other cases, and without a calibration of the case.
std::vector<theory::Prediction> overlap_predictions(const CaseData& data, const nlohmann::json& metrics);

/// What `speclab explain` says about drafting ahead: {"right": share | null, "dropped_per_step",
/// "overlapped": share, "waited_ms_per_step", "ms_per_token", "predicted_ms_per_token", "error"}. Values that
/// do not exist are null. Null for cases that do not draft ahead.
nlohmann::json overlap_summary(const CaseData& data, const nlohmann::json& metrics);
std::string overlap_text(const nlohmann::json& summary);

}  // namespace speclab
