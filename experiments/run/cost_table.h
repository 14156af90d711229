#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "core/decoding/budget/step_costs.h"
#include "core/model/net/model.h"

namespace speclab {

/// Measures the table from which the option "budget": "auto" chooses the size of drafts: the median times of
/// target forwards of 1 to 128 rows at a context of 256 tokens. `repeats` times each size. Times that fall as
/// rows grow are noise and are averaged. The result is {"context", "target_ns": {"<rows>": ns}}, "step_costs"
/// of environment.json (results/SCHEMA.md). Takes about 100 forwards of one row for each repeat.
nlohmann::json measure_cost_table(const Model& target, int repeats);

/// Reads "step_costs" of environment.json in a run's folder. Throws Error when the run has none.
nlohmann::json read_cost_table(const std::filesystem::path& run);

/// Fills the gaps between the measured numbers of rows. `where` names the table in errors. Throws Error for a
/// table without one row or with times that are not positive.
std::shared_ptr<const StepCosts> step_costs(const nlohmann::json& table, const std::string& where);

}  // namespace speclab
