#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "core/theory/lookahead.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

inline constexpr const char* kThisMachine = "this one, calibrated t(n)";

/// summary.json's "lookahead": for each group of lookahead cases that differ in W, N and G alone, the law of
/// lookahead decoding fitted to them, its error on cells and prompts that it did not see
/// (core/theory/lookahead_hold_out.h), and what it recommends on this machine and on one with free rows. An
/// empty array without two such cases.
nlohmann::json lookahead_fits(std::span<const std::shared_ptr<CaseData>> cases,
                              const nlohmann::json& calibration);

/// The law in an entry of it.
theory::LookaheadLaw lookahead_law(const nlohmann::json& fit);

/// An entry of its "machines": what the law recommends where forwards take such times.
nlohmann::json lookahead_machine(const std::string& name, const nlohmann::json& fit,
                                 const theory::RowTimes& target);

/// The t(n) of a calibration, going on beyond the largest n with the slope of the line through the upper
/// three quarters: the last two points alone differ by little more than noise.
theory::RowTimes calibrated_row_times(const nlohmann::json& calibration);

/// A machine whose forward takes as long as one row's up to so many rows, and then as long as they are many.
theory::RowTimes free_row_times(int rows);

/// The predictions `lookahead_eq7` (W = G) or `lookahead_eq7_extended` of a case, where the grid is large
/// enough from a fit that has seen no cell with its W (its N where the grid has one W); an empty object when
/// no fit holds the case. `tau` as measured, or null.
nlohmann::json lookahead_prediction(const nlohmann::json& fits, const std::string& case_id,
                                    const nlohmann::json& tau);

/// What an entry of "machines" recommends, as a sentence; says where the recommendation is degenerate (W = 1,
/// or none).
std::string lookahead_sentence(const nlohmann::json& machine);

/// The fits of a summary for people, a table for each; empty when there are none.
std::string lookahead_text(const nlohmann::json& summary);

}  // namespace speclab
