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
/// target, drafts, prompts and options. The cases of that config are replaced by the autoregressive case, one
/// case for each n below `measured_depth`, which drafts a chain of n tokens and then `width` children, and a
/// tree of up to `nodes` rows, which shows what the nodes of a large tree cost. Throws Error when the config
/// has no target or no such draft, and when it has several drafts and the wish names none.
nlohmann::json tree_calibration_config(const nlohmann::json& config, const TreeWish& wish);

/// The format of a grid file.
inline constexpr const char* kGridFormat = "speclab tree grid 1";

/// Predicts the speedup of the best tree of every size and depth (theory::tree_grid) for the cases of a run
/// that draft trees with a draft model. Returns the contents of a grid file:
///   "format": kGridFormat;
///   "cells": [{"nodes", "depth", "tau", "speedup", "step_speedup", "parents"}], the best tree of each size
///   and depth. Siblings are in the order of their ranks. "speedup" is F / (t(n) + d c) (Chen et al. 2024).
///   "step_speedup" counts all parts of a step (core/theory/tree_costs.h); null if the costs are not known
///   (calibrated_tree_costs), and with times of another machine; "chains": [{"gamma", "tau", "speedup",
///   "step_speedup"}], the same for chains; "chosen_by": "step_speedup" or "speedup", the prediction to
///   choose by; "acceptance": [depth][rank], "reached": [depth][rank], "c", "t": {"n": ratio}, "costs"
///   (to_json of tree_costs.h) or null; "target", "draft", "device", "numerics", "run"; "prompts": [{"id",
///   "split", "sha256"}] of the run, with the SHA-256 of the turns joined by U+001E; "draws": {"draft",
///   "rule", options} (how children are drawn and judged).
/// Throws Error when the run has no trees, when its trees are drawn or judged in different ways, when no step
/// reached a child, and when the run has no calibration, unless the wish has both t(n) and c.
nlohmann::json tree_grid_of(const RunData& run, const TreeWish& wish);

/// A grid as text: one cell a line.
std::string to_grid_file(const nlohmann::json& grid);

/// Chooses the best tree of a grid. Returns the contents of a tree file
/// (core/decoding/drafting/tree_shape.h): the members of the grid without its cells and chains, and
///   "nodes", "depth"; "predicted": {"tau", "speedup", "step_speedup", "chosen_by", "chain": {"gamma", "tau",
///   "speedup", "step_speedup"}} of the tree and of the best chain.
/// "parents" is empty when no tree is faster than autoregressive decoding.
nlohmann::json best_tree_of(const nlohmann::json& grid);

/// A tree of best_tree_of() as text.
std::string to_tree_text(const nlohmann::json& tree);

}  // namespace speclab
