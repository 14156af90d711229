#pragma once

#include <vector>

#include "core/theory/tree_search.h"

/// Predicts the time of a step that drafts and verifies a tree, from the measured costs of all its parts.
///
/// Chen et al. 2024 (Sequoia, Section 3.3) take t(n) + d c as the time of a step with d levels: the target's
/// forward over n rows, and for each level one forward of the draft, which costs c whatever its number of
/// rows. The functions here also include the rows of each draft forward, the drawing of tokens, the
/// acceptance rule and the bookkeeping. The result also holds the time of a whole autoregressive step.
namespace speclab::theory {

/// Mean costs of the parts of a step. All times are in one unit.
struct TreeCosts {
  double t_ar = 0;          ///< a whole autoregressive step: forward over one row, sampling, bookkeeping
  RowTimes target;          ///< a forward of the target, by its number of rows
  RowTimes draft;           ///< a forward of the draft model, by its number of rows
  double draft_step = 0;    ///< drafting without the times `draft`: the part that every step has
  double draft_token = 0;   ///< drafting without the times `draft`: the part that each drafted token adds
  double accept_step = 0;   ///< the acceptance rule, per step
  double accept_token = 0;  ///< the same per emitted token
  double other_step = 0;    ///< everything else, per step
  double other_token = 0;   ///< the same per drafted token
};

/// The rows of each draft forward, [depth of the tree]: entry i is the number of nodes at depth i that have
/// children. The first forward may also feed tokens of the previous step that are not in the draft model's
/// cache yet; they are not counted. Throws Error for a parent that does not come before its child.
std::vector<int> draft_forward_rows(const RankedTree& tree);

/// The mean times of a step that drafts this tree and emits `expected_tokens` on average. The speedup is
/// measured_cost_speedup(expected_tokens, these times).
StepTimes tree_step_times(const RankedTree& tree, double expected_tokens, const TreeCosts& costs);

}  // namespace speclab::theory
