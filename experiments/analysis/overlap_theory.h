#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/theory/predictions.h"
#include "experiments/metrics/run_data.h"

/// The timeline of cases that draft the next step while the target verifies (StrategyInfo::drafts_ahead).
namespace speclab {

/// Predictions from costs that the calibration measured (OverlapTimer), mostly while both models worked:
///   post_verify_iid (ms_per_token): simulate::post_verify_token_time() with the alpha and gamma of the case,
///     if alpha is known and gamma is constant
///   post_verify (ms_per_token), post_verify_speedup (speedup): the same timeline, step by step. The record
///     of repeat 0 says which steps drafted anew, how many rows each step verified and how many draft
///     forwards ran beside it. The rule and the bookkeeping take time here, too.
/// Empty for cases that do not draft ahead, and without a calibration of the case.
std::vector<theory::Prediction> overlap_predictions(const CaseData& data, const nlohmann::json& metrics);

/// What `speclab explain` says about drafting ahead: {"right": share of drafts made ahead that were used,
/// "dropped_per_step": tokens, "overlapped": share of their time that passed during the verification,
/// "waited_ms_per_step", "ms_per_token", "predicted_ms_per_token", "error"}. Unknown values are null. The
/// result is null for cases that do not draft ahead.
nlohmann::json overlap_summary(const CaseData& data, const nlohmann::json& metrics);
std::string overlap_text(const nlohmann::json& summary);

}  // namespace speclab
