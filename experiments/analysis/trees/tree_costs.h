#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>

#include "core/theory/tree_costs.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// Makes the costs of a step with any tree from the calibration of a run. `cases` are one or more cases with
/// the same draft model. The trees of a case have one shape, except where the end of a text cuts them.
///
/// The times of forwards are those of the calibration. Two costs are fitted to the cases as linear functions
/// of the number of drafted tokens: the time of drafting besides its forwards, and the time of a step that is
/// neither drafting nor the target's forward nor the rule. The cost of the rule is the mean over the cases.
/// It also depends on the number of children of a node, but this is not modelled. All times are in ns.
///
/// Absent without a calibration of all these cases and of their reference. Also absent unless forwards of the
/// draft model were measured over more than two rows ("draft_rows" of the calibration), because the draft's
/// forward over a level of a tree has many rows.
std::optional<theory::TreeCosts> calibrated_tree_costs(std::span<const CaseData* const> cases);

/// The costs as JSON: {"t_ar", "target": {"rows": time}, "draft": {"rows": time}, "draft_step",
/// "draft_token", "accept_step", "accept_token", "other_step", "other_token"} in ms. The times of the
/// target go up to `rows` rows.
nlohmann::json to_json(const theory::TreeCosts& costs, int rows);

}  // namespace speclab
