#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/analysis/trees/tree_choice.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// Chooses a tree for each of wish.by_confidence ranges of the draft model's confidence (root_confidence of a
/// step): `speclab optimize tree --by-confidence`. The ranges have about equal numbers of the measured steps;
/// there are fewer ranges if many steps have the same confidence. The acceptance at depth 1 is measured in
/// each range, and below depth 1 in all steps together (CountsByKind). The chosen trees are those with the
/// fastest predicted mixture (theory::best_tree_mixture). "chosen_by" below names the prediction that is
/// used: "step_speedup" or "speedup" (tree_grid_of).
///
/// `tree` is the best single tree of the same run (best_tree_of). Returns the contents of a tree file with
/// several trees (kTreesFormat): the members of `tree` about the measurement, and
///   "trees": [{"from", "to", "share" (of the steps), "nodes", "depth", "tau", "parents", "ranks",
///   "acceptance": [rank], "reached": [rank]}], the last two measured at depth 1 in the steps of the range;
///   "predicted": {"tau", "speedup", "step_speedup", "chosen_by", "tree": {"nodes", "depth", "tau",
///   "speedup", "step_speedup"}, "chain"} of the mixture, of the best single tree, and of the best chain.
/// "trees" is empty when no mixture is faster than autoregressive decoding. Throws Error as tree_grid_of()
/// does, when no step of the run has a confidence, and when so many steps have the same confidence that only
/// one range is left.
nlohmann::json best_mixture_of(const RunData& run, const TreeWish& wish, const nlohmann::json& tree);

/// A mixture of best_mixture_of() as text. Of the best single tree, the text shows the predictions alone.
std::string to_mixture_text(const nlohmann::json& mixture);

}  // namespace speclab
