#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>

#include "core/theory/tree_costs.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// Makes the costs of a step with any tree from the calibration of a run. `cases` are at least one case of
/// one draft model, each with trees of one shape.
///
/// The times of forwards are those of the calibration. What drafting takes besides its forwards, and
/// everything besides drafting, forwards and the rule, is a line over the number of drafted tokens, fitted to
/// the cases. The cost of the rule is the mean over the cases; it also depends on the number of children of a
/// node, which is not modelled. All times are in ns.
///
/// Absent without a calibration of all these cases and of their reference. Also absent unless forwards of the
/// draft model were measured over more than two rows ("draft_rows" of the calibration), because a level of a
/// tree has many.
std::optional<theory::TreeCosts> calibrated_tree_costs(std::span<const CaseData* const> cases);

/// The costs as JSON: {"t_ar", "target": {"rows": time}, "draft": {"rows": time}, "draft_step",
/// "draft_token", "accept_step", "accept_token", "other_step", "other_token"} in ms. Times of the target up
/// to `rows`.
nlohmann::json to_json(const theory::TreeCosts& costs, int rows);

}  // namespace speclab
