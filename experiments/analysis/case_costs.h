#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "core/theory/explain.h"
#include "core/theory/predictions.h"
#include "experiments/metrics/run_data.h"

/// What the closed forms need to know of one case: the shape of its drafts from its own steps, costs from the
/// calibration. Used by predictions and waterfalls.
namespace speclab {

/// A metric of a case; absent when the metric is missing or null.
std::optional<double> metric_number(const nlohmann::json& metrics, const char* name);

/// Do steps feed rows besides the pending token and the drafted tokens (the window of lookahead decoding)?
/// Then the draft length does not say what a step costs.
bool feeds_probes(const CaseData& data);

/// The draft length of a case that asks for the same length in every step: the longest one. The end of a text
/// cuts drafts, and a draft model sometimes drafts an end token and stops. A case in which more than 5 % of
/// the other steps draft less has varying lengths: absent.
std::optional<int> constant_gamma(const CaseData& data, const theory::DraftLengths& lengths);

/// The calibrated costs of a case. `table`: see calibration_costs. Absent without a calibration of the case
/// and of its reference.
std::optional<theory::Calibration> calibration_of(const CaseData& data, const nlohmann::json& table);

/// c of the closed forms: the time of the draft model's forwards for one drafted token, divided by the time
/// of a target forward of one row. Both times come from the calibration `table`; no other cost of drafting is
/// in it. 0 without a draft model.
std::optional<double> cost_per_drafted_token(const CaseData& data, const nlohmann::json& metrics,
                                             const nlohmann::json& table);

}  // namespace speclab
