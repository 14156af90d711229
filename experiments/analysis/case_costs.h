#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "core/theory/explain.h"
#include "core/theory/predictions.h"
#include "experiments/metrics/run_data.h"

/// Computes the inputs of the closed forms for one case. The lengths of its drafts come from its recorded
/// steps, and its costs from the calibration. Predictions and waterfalls use these inputs.
namespace speclab {

/// A metric of a case; absent when the metric is missing or null.
std::optional<double> metric_number(const nlohmann::json& metrics, const char* name);

/// True if a step feeds rows besides the pending token and the drafted tokens, as the window of lookahead
/// decoding does. The draft length then does not determine the cost of a step.
bool feeds_probes(const CaseData& data);
/// True if a verifying forward has more rows than the pending token and the drafted tokens. This is so if
/// steps feed probes, or if each node ends a sequence of its own ("verify": "batch_of_prefixes"). The time of
/// a step is then not t(gamma + 1).
bool feeds_further_rows(const CaseData& data);

/// Returns the draft length of a case that asks for the same length in every step: the longest length that
/// occurs. Some drafts are shorter, because the end of the text cuts them, or because the draft model drafts
/// an end token and stops. If more than 5 % of the steps have a shorter draft that the end of the text did
/// not cut, the length varies and the result is absent. It is also absent when nothing was drafted.
std::optional<int> constant_gamma(const CaseData& data, const theory::DraftLengths& lengths);

/// Returns the share of a row's forward that drafting did before the verification, on average over the
/// drafted tokens. It is above 0 only if the target drafts for itself and the verifying forward goes on from
/// the drafted rows (an early exit). Computed from counted operations: (operations that the verification
/// saved per drafted token) / (operations of one row of the reference).
double share_done_by_drafting(const CaseData& data);

/// Returns the calibrated costs of a case. `table` comes from calibration_costs. Absent unless the
/// calibration has costs of both the case and its reference.
std::optional<theory::Calibration> calibration_of(const CaseData& data, const nlohmann::json& table);

/// Returns c of the closed forms: the time that the draft model's forwards take per drafted token, divided by
/// the time of a target forward over one row. Both times come from the calibration `table`. Other costs of
/// drafting are not included. For a case that drafts on the target itself, also if a draft model drafts for
/// it, returns cost_of_drafting(). For other cases without a draft model, returns 0. Absent if the
/// calibration or the metrics lack a number.
std::optional<double> cost_per_drafted_token(const CaseData& data, const nlohmann::json& metrics,
                                             const nlohmann::json& table);

}  // namespace speclab
