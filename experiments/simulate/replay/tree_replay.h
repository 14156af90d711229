#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/decoding/drafting/trees_by_confidence.h"
#include "core/theory/explain.h"
#include "core/theory/tree_costs.h"
#include "experiments/simulate/replay/rank_trace.h"

namespace speclab {

/// Decoding with trees, without the models. A step walks down its tree along the ranks of the text's next
/// tokens: a token of rank r is accepted if the node has more than r children. At temperature 0 every
/// lossless rule accepts exactly these tokens; the rule `coupled` does so at every temperature. The texts
/// then do not depend on the draft. So tau is exact for trees of tree_speculation whose children are the
/// draft's best tokens. In the other cases that RankTrace::certainty allows, tau is an expectation.

/// What a replay of trees counts.
struct TreeReplayed {
  double steps = 0, tokens = 0, drafted = 0, accepted = 0;
  theory::DraftLengths rows;      ///< entry n: steps whose target forward has n rows
  theory::DraftLengths forwards;  ///< entry n: forwards of the draft model over n rows of the tree
  double tau() const { return tokens / steps; }
};
void add_replayed(TreeReplayed& sum, const TreeReplayed& one);

/// Trees in the form that a replay walks. The trees must live as long as this object.
class TreeWalk {
 public:
  explicit TreeWalk(const TreesByConfidence& trees);
  /// Replays one text. The confidence at a position chooses the tree of the step there.
  TreeReplayed replay(const RankedText& text) const;

 private:
  /// What a tree drafts if it may have this many levels.
  struct Part {
    int drafted = 0;
    std::vector<int> forward_rows;  // of each forward of the draft model
  };
  const TreesByConfidence& trees_;
  std::vector<std::vector<Part>> parts_;  // [trees][levels]
};

/// Replays the texts with these indices. Throws Error if a node of a tree has more children than the trace
/// has ranks, and for several trees if the trace has no confidences.
TreeReplayed replay_trees(const RankTrace& trace, std::span<const std::size_t> texts,
                          const TreesByConfidence& trees);

/// Time of all steps from the costs of the parts of a step, in the unit of the costs. For steps that all
/// draft the whole tree it is the number of steps times theory::tree_step_times().
double time_of_trees(const TreeReplayed& counts, const theory::TreeCosts& costs);

/// The input of theory::calibrated_rows_step() for these steps; law, speedup and drift are left to the
/// caller.
theory::RowsExplainInput rows_of_trees(const TreeReplayed& counts, const theory::Calibration& costs);

/// A tree to replay and what to call it.
struct NamedTrees {
  std::string name;
  TreesByConfidence trees;
};
/// Reads a tree file, or widths of levels such as "3,2,1" if there is no such file. Throws Error as
/// TreesByConfidence::read() and TreeShape::of_widths() do.
NamedTrees named_trees(const std::string& text);

/// Replays every tree for every trace. Returns [{"case", "certainty", "tree": name, "trees": number of trees,
/// "nodes": of the largest, "depth", "tau", "tau_ci95", "drafted_per_step", "draft_utilization", "speedup" |
/// null, "speedup_ci95" | null, "ms_per_token" | null, "problem": null | why numbers are null}].
/// The times come from the calibration of the trace's run (calibrated_tree_costs): it must have measured
/// forwards of the draft model over more than two rows ("draft_rows").
nlohmann::json replayed_trees(std::span<const RankTrace> traces, const std::vector<NamedTrees>& trees);

std::string replayed_trees_text(const nlohmann::json& replay);  ///< a table for people

}  // namespace speclab
