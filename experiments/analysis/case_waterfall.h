#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "core/theory/explain.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// Explains the speedup of one case term by term, from the i.i.d. prediction (Leviathan et al. 2023, Theorem
/// 3.8, at the calibrated c) to the measurement. If steps feed probes, drafts branch or the rule judges whole
/// paths, the explanation starts instead from a number of tokens per step, as if rows cost nothing
/// (theory::explain_rows). This number is the one that the strategy's own theory predicts, if `sections`
/// (theory_sections) has a prediction for the case, else the measured one. Absent without calibration, drafts
/// or speedup.
std::optional<theory::Waterfall> case_waterfall(const CaseData& data, const nlohmann::json& metrics,
                                                const nlohmann::json& sections = nlohmann::json::object());
/// "waterfall" of a case in summary.json: the prediction first, the measurement last.
nlohmann::json waterfall_json(const theory::Waterfall& waterfall);

}  // namespace speclab
