#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/theory/lookahead.h"

/// Tests how well the law of lookahead decoding predicts cells and prompts that were left out of its fit.
namespace speclab::theory {

/// The errors of a set of predictions.
struct LookaheadTest {
  int predictions = 0;
  double error = 0;       ///< median of |predicted / measured - 1|
  double mean_error = 0;  ///< the same for the mean S of the fitted cells as the prediction
};

/// One way to leave cells out of the fit.
struct LookaheadHoldOut {
  /// Which cells are left out. "prompts": no cell, only prompts. "cells": every second cell in the order of
  /// their rows, so a near twin of each cell stays in the fit. "W", "N" or "G": all cells with one value of
  /// it, so a whole row or column of the grid is new.
  std::string what;
  /// [cells]: S predicted by a fit without the cell, over all prompts. Absent when too few cells are left.
  /// Empty for "prompts".
  std::vector<std::optional<double>> predicted;
  /// [cells]: true when the cell lies in the convex hull of the fitted cells (in W, N
  /// and G), false for an extrapolation.
  std::vector<bool> interpolated;
  /// Errors when fit and test use the same prompts. Absent for "prompts".
  std::optional<LookaheadTest> same_prompts;
  /// Errors when the law is fitted on one half of the prompts and tested on the other, in both directions.
  /// Absent with fewer than two prompts.
  std::optional<LookaheadTest> other_prompts;
};

/// Runs all hold-outs that the grid allows: W, N or G only if it takes several values, G only if it differs
/// from W in some cell. Empty with fewer than six cells.
std::vector<LookaheadHoldOut> hold_out_lookahead(std::span<const LookaheadCell> cells);

/// Whether `shape` is a weighted mean of `points`.
bool in_hull(std::span<const LookaheadShape> points, const LookaheadShape& shape);

}  // namespace speclab::theory
