#include "core/theory/tree_costs.h"

#include "core/base/error.h"

namespace speclab::theory {

std::vector<int> draft_forward_rows(const RankedTree& tree) {
  std::vector<int> depths = {0};
  std::vector<char> inner(tree.parents.size() + 1);
  for (std::size_t i = 0; i < tree.parents.size(); ++i) {
    const int parent = tree.parents[i];
    if (parent < 0 || parent > static_cast<int>(i)) {
      throw Error({fmt::format("node {} of a tree", i + 1), fmt::format("parent {}", parent),
                   fmt::format("a parent from 0 to {}", i), ""});
    }
    depths.push_back(depths[static_cast<std::size_t>(parent)] + 1);
    inner[static_cast<std::size_t>(parent)] = 1;
  }
  std::vector<int> rows;
  for (std::size_t node = 0; node < inner.size(); ++node) {
    if (inner[node] == 0) continue;
    const auto depth = static_cast<std::size_t>(depths[node]);
    if (rows.size() <= depth) rows.resize(depth + 1);
    ++rows[depth];
  }
  return rows;
}

StepTimes tree_step_times(const RankedTree& tree, double expected_tokens, const TreeCosts& costs) {
  const double drafted = tree.nodes() - 1;
  StepTimes step;
  step.t_ar = costs.t_ar;
  step.draft = costs.draft_step + costs.draft_token * drafted;
  for (const int rows : draft_forward_rows(tree)) step.draft += costs.draft.at(rows);
  step.target = costs.target.at(tree.nodes());
  step.accept = costs.accept_step + costs.accept_token * expected_tokens;
  step.other = costs.other_step + costs.other_token * drafted;
  return step;
}

}  // namespace speclab::theory
