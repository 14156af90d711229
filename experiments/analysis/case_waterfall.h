#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/theory/explain.h"
#include "core/theory/predictions.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// Why the speedup of a case is what it is, and what would change it.
struct CaseExplanation {
  theory::Waterfall waterfall;
  /// The speedup of the calibrated step and the what-ifs (theory::sensitivity), with intervals.
  std::vector<theory::Prediction> sensitivity;
};

/// Explains the speedup of one case term by term, from the i.i.d. prediction (Leviathan et al. 2023, Theorem
/// 3.8, at the calibrated c) to the measurement. If steps feed probes, drafts branch or the rule judges whole
/// paths, the explanation starts from a number of tokens per step, as if rows cost nothing
/// (theory::explain_rows). This number is the prediction of the strategy's own theory if `sections`
/// (theory_sections) has one for the case, else the measured number. Absent without calibration, drafts or
/// speedup, and when a number is outside the domain of the formulas.
///
/// The intervals of all terms and what-ifs come from one bootstrap over prompts and calibration rounds
/// (for_each_resample). A drawn prompt brings its tokens, drafts, tests and times. All resamples share the
/// strategy's own prediction of tau, the share of rows with logits, and the growth of a tree's tokens with
/// the acceptance.
std::optional<CaseExplanation> explain_case(const CaseData& data, const nlohmann::json& metrics,
                                            const nlohmann::json& sections = nlohmann::json::object());

/// "waterfall" of a case in summary.json: the prediction first, the measurement last.
nlohmann::json waterfall_json(const theory::Waterfall& waterfall);

/// The what-ifs by name, with the speedup of the calibrated step ("measured_costs") among them: {"value",
/// "value_ci95", "kind", "measured", "error", "quantity", "equation", "assumptions"} as in "predictions" of
/// summary.json, and for a what-if "change": value / measured_costs - 1.
nlohmann::json sensitivity_json(const CaseExplanation& explanation, const nlohmann::json& metrics);
/// Adds the what-ifs to "predictions" of a case. measured_costs is added only if it is not there yet. It gets
/// no interval, because other predictions of this name have none.
void add_what_ifs(nlohmann::json& predictions, const CaseExplanation& explanation,
                  const nlohmann::json& metrics);

}  // namespace speclab
