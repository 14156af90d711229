#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/theory/lookahead.h"

/// Tests how well the law of lookahead decoding predicts cells (settings in the grid) and prompts that were
/// left out of its fit. S is the number of tokens per step.
namespace speclab::theory {

/// The errors of a set of predictions.
struct LookaheadTest {
  int predictions = 0;
  double error = 0;  ///< median of |predicted / measured - 1|
  /// The same median when every cell is predicted to have the mean S of the fitted cells.
  double mean_error = 0;
};

/// One way to leave cells or prompts out of the fit.
struct LookaheadHoldOut {
  /// What is left out. "prompts": only prompts, no cell. "cells": one half of the cells, then the other half.
  /// Neighbours in the order of rows per step are in different halves, so the fit keeps a similar cell for
  /// each that is left out. "W", "N" or "G": all cells with one value of W, N or G, so the fit has seen no
  /// cell with this value. Each value is left out in turn.
  std::string what;
  /// [cells]: S predicted by a fit without the cell, over all prompts. Absent when too few cells are left.
  /// Empty for "prompts".
  std::vector<std::optional<double>> predicted;
  /// [cells]: true when the cell lies in the convex hull of the fitted cells (in W, N and G), false for an
  /// extrapolation and when too few cells are left to fit.
  std::vector<bool> interpolated;
  /// Errors when fit and test use the same prompts. Absent for "prompts".
  std::optional<LookaheadTest> same_prompts;
  /// Errors when the law is fitted on one half of the prompts and tested on the other, in both directions.
  /// Absent with fewer than two prompts.
  std::optional<LookaheadTest> other_prompts;
};

/// Runs all hold-outs that the grid allows. W, N or G is held out only if it takes several values, and G only
/// if it also differs from W in some cell. Empty with fewer than six cells.
std::vector<LookaheadHoldOut> hold_out_lookahead(std::span<const LookaheadCell> cells);

/// Whether `shape` lies in the convex hull of `points`, that is, whether it is a weighted mean of them.
bool in_hull(std::span<const LookaheadShape> points, const LookaheadShape& shape);

}  // namespace speclab::theory
