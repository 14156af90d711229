#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/decoding/budget/step_costs.h"
#include "core/model/net/model.h"

namespace speclab {

/// Measures the table from which the option "budget": "auto" and the schedule `bandit` choose the size of
/// drafts: the median times of forwards at a context of 256 tokens, of the target over 1 to 128 rows and of
/// each draft model over 1 to 32 rows. A model with a short context is measured at half its context and over
/// fewer rows. `drafts` holds the draft models by name. Each size is measured `repeats` times; a simulated
/// GPU is slow, so it measures 1 and 2 rows once. Times that fall as rows grow are noise and are averaged.
/// The result is {"context", "target_ns": {"<rows>": ns}, "draft_ns": {"<draft>": {"<rows>": ns}}},
/// "step_costs" of environment.json (results/SCHEMA.md); without drafts it has no "draft_ns". Each repeat
/// takes about as long as 100 forwards of the target over one row.
///
/// With `own_drafts` the table also has "layer_ns" and "position_ns", the times of one layer and of one
/// cached position, for strategies that draft with the target itself. They come from a forward over one row
/// through half of the layers, and from a forward over one row in a context of 1024 tokens. This takes as
/// long as the prefill of that context. A simulated device has no "position_ns".
nlohmann::json measure_cost_table(const Model& target, const std::map<std::string, const Model*>& drafts,
                                  bool own_drafts, int repeats);

/// Reads a table of costs: from "step_costs" of environment.json in the folder of a run, or from a JSON file
/// that holds the table itself. Throws Error when there is none.
nlohmann::json read_cost_table(const std::filesystem::path& path);

/// The costs of the cases by the names of their draft models, in the order of the case; {} for cases without
/// a draft model.
using CostsByDrafts = std::map<std::vector<std::string>, std::shared_ptr<const StepCosts>>;

/// Fills the gaps between the measured numbers of rows. `where` names the table in errors. `drafts` are the
/// lists of draft models of the cases. Throws Error for a table that lacks the time of 1 row or has times
/// that are not positive. Tables of older versions lack drafts or the time of a layer. The costs then lack
/// them too, and strategies that need them throw Error.
CostsByDrafts step_costs(const nlohmann::json& table, const std::string& where,
                         const std::set<std::vector<std::string>>& drafts);

}  // namespace speclab
