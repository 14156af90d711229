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
  int width = 8;           ///< largest rank of a child whose acceptance is measured
  int measured_depth = 4;  ///< largest depth whose acceptance is measured; it stands for all greater depths
  int nodes = 64;  ///< largest number of rows of the target's forward: pending token and drafted tokens
  int depth = 10;  ///< largest number of levels of the chosen tree
  /// Number of ranges of the draft model's confidence; each range gets a tree of its own (mixture_choice.h).
  /// 0: one tree for all steps, and the confidence is not measured.
  int by_confidence = 0;
  /// t(n) and c of another machine; absent: those of the run's calibration.
  std::optional<theory::RowTimes> target = std::nullopt;
  std::optional<double> c = std::nullopt;
  std::string machine = "times of --t";  ///< for people: where `target` comes from
};

/// Makes the config of a run that measures acceptance by rank and depth, t(n) and c, from a config with a
/// target, drafts, prompts and options. These cases replace those of the given config: the autoregressive
/// case; for each n from 0 to measured_depth - 1 a case that drafts a chain of n tokens and then `width`
/// children; and, if `nodes` leaves room for a second level, a case with a tree of up to `nodes` rows, which
/// shows what the nodes of a large tree cost.
/// Throws Error when the config has no target or lacks the draft of the wish, and when the wish names no
/// draft and the config does not have exactly one.
nlohmann::json tree_calibration_config(const nlohmann::json& config, const TreeWish& wish);

/// The format of a grid file.
inline constexpr const char* kGridFormat = "speclab tree grid 1";

/// Predicts the speedup of the best tree of every size and depth (theory::tree_grid) for the cases of a run
/// that draft trees with a draft model. Returns the contents of a grid file:
///   "format": kGridFormat;
///   "cells": [{"nodes", "depth", "tau", "speedup", "step_speedup", "parents"}], the best tree of each size
///   and depth. Siblings are in the order of their ranks. "speedup" is tau / (t(n) + d c) for a tree of n
///   nodes and d levels (Chen et al. 2024, Sequoia, where tau is called F).
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

/// A grid as text, with one line for each cell and each chain.
std::string to_grid_file(const nlohmann::json& grid);

/// Chooses the best tree of a grid. Returns the contents of a tree file
/// (core/decoding/drafting/tree_shape.h): the members of the grid without its cells and chains, and
///   "nodes", "depth"; "predicted": {"tau", "speedup", "step_speedup", "chosen_by", "chain": {"gamma", "tau",
///   "speedup", "step_speedup"}} of the tree and of the best chain.
/// "parents" is empty when no tree is faster than autoregressive decoding.
nlohmann::json best_tree_of(const nlohmann::json& grid);

/// A tree of best_tree_of() as text.
std::string to_tree_text(const nlohmann::json& tree);
/// "tau", "speedup" and "step_speedup" of `predicted` as text.
std::string predicted_text(const nlohmann::json& predicted);

}  // namespace speclab
