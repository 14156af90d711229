#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/theory/tree_search.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// A setting of a traced drafter, and what the replay of its trace predicts. The times come from the
/// calibration of the trace's run.
struct ReplayedSetting {
  std::string case_id;           ///< the traced case
  int length = 0;                ///< tokens of a drafted chain; 0: the setting drafts a tree
  theory::RankedTree tree = {};  ///< the drafted tree; empty for a chain
  double tau = 0, speedup = 0;
  nlohmann::json tau_ci95 = nullptr, speedup_ci95 = nullptr;  ///< [lo, hi] by a bootstrap over prompts | null
  bool drafts_tree() const { return length == 0; }
};

/// Which trees are searched.
struct TreeLimits {
  int nodes = 16;  ///< rows of the largest tree, the pending token included
  int depth = 8;   ///< levels of the deepest tree
  int best = 1;    ///< largest number of trees that are returned for each trace
};

/// The settings of all traces of a run: every constant length of each trace of chains, and the fastest trees
/// of each trace of trees (best_trees.h). Fastest first; ties in the order of cases and lengths. Leaves out
/// traced cases without calibrated costs, and cases that draft trees of another kind than
/// tree_speculation, because a replay cannot shorten these. Trees have no more rows than the calibration
/// measured. Throws Error as read_traces() and read_rank_traces() do.
std::vector<ReplayedSetting> replayed_settings(const RunData& run, const TreeLimits& limits);

}  // namespace speclab
