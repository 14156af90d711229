#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/theory/step_costs.h"
#include "experiments/metrics/run_data.h"

/// Chooses the tree that a pair of models should draft on a machine: `speclab optimize tree`.
namespace speclab {

/// What is measured for the choice of a tree, and how large the chosen tree may be.
struct TreeWish {
  std::string draft;       ///< name of a draft of the config; "": its only one
  int width = 8;           ///< children whose acceptance is measured
  int measured_depth = 4;  ///< depths at which it is measured; the last one stands for all greater depths
  int nodes = 64;          ///< most rows of the target's forward: the pending token and the drafted tokens
  int depth = 10;          ///< most levels of the chosen tree
  /// t(n) and c of another machine; absent: those of the run's calibration.
  std::optional<theory::RowTimes> target = std::nullopt;
  std::optional<double> c = std::nullopt;
};

/// Makes the config of a run that measures acceptance by rank and depth, t(n) and c, from a config with a
/// target, drafts, prompts and options. The cases of that config are replaced by the autoregressive case and
/// one case for each n below `measured_depth`, which drafts a chain of n tokens and then `width` children.
/// Throws Error when the config has no target or no such draft, and when it has several drafts and the wish
/// names none.
nlohmann::json tree_calibration_config(const nlohmann::json& config, const TreeWish& wish);

/// Finds the best tree for the cases of a run that draft trees with a draft model. Returns the contents of a
/// tree file (core/decoding/drafting/tree_shape.h) with
///   "nodes", "depth"; "predicted": {"tau", "speedup", "chain": {"gamma", "tau", "speedup"}} of the tree and
///   of the best chain; "acceptance": [depth][rank], "reached": [depth][rank], "c", "t": {"n": ratio};
///   "target", "draft", "device", "numerics", "run"; "draws": {"draft", "rule", options} (how children are
///   drawn and judged).
/// "parents" is empty when no tree is faster than autoregressive decoding. Throws Error when the run has no
/// trees, when its trees are drawn or judged in different ways, when no step reached a child, and when the
/// run has no calibration, unless the wish has both t(n) and c.
nlohmann::json optimized_tree(const RunData& run, const TreeWish& wish);

/// A tree of optimized_tree() as text.
std::string to_tree_text(const nlohmann::json& tree);

}  // namespace speclab
