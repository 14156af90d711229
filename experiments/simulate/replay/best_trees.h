#pragma once

#include <vector>

#include "core/decoding/drafting/tree_shape.h"
#include "core/theory/tree_costs.h"
#include "core/theory/tree_search.h"
#include "experiments/simulate/replay/rank_trace.h"

namespace speclab {

/// The search for the best drafted tree on a trace of trees. The theory gives the candidates: the best tree
/// of each size and depth in theory::tree_grid() for the ranks of the trace (Chen et al. 2024, "Sequoia").
/// Each candidate is then replayed, so its tau is as certain as RankTrace::certainty says. All parts of its
/// steps are priced.

/// A tree and what its replay gives.
struct ReplayedTree {
  theory::RankedTree tree;
  double tau = 0, speedup = 0;
};

/// P(the text's next token has rank k among the draft's tokens), k = 1, 2, ..., over the positions at which
/// the draft model drafts. This is the acceptance by rank alone, as in the paper. Without such positions all
/// entries are 0.
theory::RankAcceptance acceptance_of_ranks(const RankTrace& trace);

/// The shape of a tree, for replays. Throws Error for a tree without drafted tokens.
TreeShape shape_of(const theory::RankedTree& tree);

/// Replays the best trees of at most `most_nodes` rows (node 0 included) and `most_depth` levels, and sorts
/// them by speedup, fastest first. Ties go to the smaller depth, then to fewer nodes. Leaves out chains,
/// which a trace of chains replays. Empty if the trace has no positions. Throws Error for sizes that
/// theory::tree_grid() refuses.
std::vector<ReplayedTree> search_trees(const RankTrace& trace, const theory::TreeCosts& costs, int most_nodes,
                                       int most_depth);

}  // namespace speclab
