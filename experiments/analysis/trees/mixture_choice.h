#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/analysis/trees/tree_choice.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// Chooses a tree for each of wish.by_confidence ranges of the draft model's confidence (root_confidence of a
/// step): `speclab optimize tree --by-confidence`. The ranges have about equal numbers of the measured steps;
/// there are fewer of them if many steps have the same confidence. The acceptance at depth 1 is measured in
/// each range, and below depth 1 in all steps together (CountsByKind). The trees are those with the largest
/// predicted speed of the mixture (theory::best_tree_mixture), by the prediction "chosen_by" of the grid.
///
/// `tree` is the best single tree of the same run (best_tree_of). Returns the contents of a tree file with
/// several trees (kTreesFormat): the members of `tree` about the measurement, and
///   "trees": [{"from", "to", "share" (of the steps), "nodes", "depth", "tau", "parents", "ranks",
///   "acceptance": [rank], "reached": [rank]}], the last two at depth 1 in these steps;
///   "predicted": {"tau", "speedup", "step_speedup", "chosen_by", "tree": {"nodes", "depth", "tau",
///   "speedup", "step_speedup"}, "chain"} of the mixture, of the best single tree, and of the best chain.
/// "trees" is empty when no mixture is faster than autoregressive decoding. Throws Error as tree_grid_of()
/// does, and when the steps of the run have no confidence or all the same.
nlohmann::json best_mixture_of(const RunData& run, const TreeWish& wish, const nlohmann::json& tree);

/// A mixture of best_mixture_of() as text. Of the best single tree, the text has only the predictions.
std::string to_mixture_text(const nlohmann::json& mixture);

}  // namespace speclab
