#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "core/theory/tree_costs.h"
#include "experiments/analysis/trees/tree_acceptance.h"
#include "experiments/analysis/trees/tree_choice.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// What a run says about trees: the measured acceptance, and the times that the choice of a tree needs.
struct TreeInputs {
  std::vector<const CaseData*> cases;  ///< the cases of the run whose children are counted; not empty
  RankCounts counts;                   ///< of all these cases
  theory::RowTimes target;             ///< t(n)
  double c = 0;
  std::optional<theory::TreeCosts>
      costs;      ///< absent if they are not known, and with times of another machine
  int nodes = 1;  ///< largest number of rows that the wish, a tree and the known times all allow
};

/// The cases of a run whose children are counted. Throws Error if there are none, or if they draw or judge
/// children in different ways.
std::vector<const CaseData*> tree_cases(const RunData& run, const TreeWish& wish);

/// Reads these inputs from a run. The times of `wish`, if it has any, replace those of the run. Cases that
/// draft one of several trees are left out, because the steps with one of these trees are not like the other
/// steps. Throws Error as tree_grid_of() does. The result must not outlive the run.
TreeInputs tree_inputs(const RunData& run, const TreeWish& wish);

/// How the children of a case are drawn and judged: {"draft", "rule", options}. Counts of cases with
/// different values are not added up.
nlohmann::json draws_of(const CaseData& data);

}  // namespace speclab
