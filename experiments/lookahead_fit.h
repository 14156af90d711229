#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "experiments/run_data.h"

namespace speclab {

/// summary.json's "lookahead": for each group of lookahead cases that differ in W, N and G alone, the law of
/// lookahead decoding fitted to them, its error on cells that it did not see, and what it recommends on this
/// machine and on one with free rows (core/theory/lookahead.h). An empty array without two such cases.
nlohmann::json lookahead_fits(std::span<const std::shared_ptr<CaseData>> cases,
                              const nlohmann::json& calibration);

/// The predictions `lookahead_eq7` (W = G) or `lookahead_eq7_extended` of a case, from a fit that has not
/// seen it where the grid is large enough; an empty object when no fit holds the case. `tau` as measured, or
/// null.
nlohmann::json lookahead_prediction(const nlohmann::json& fits, const std::string& case_id,
                                    const nlohmann::json& tau);

/// The fits of a summary for people, a table for each; empty when there are none.
std::string lookahead_text(const nlohmann::json& summary);

}  // namespace speclab
