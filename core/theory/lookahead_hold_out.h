#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/theory/lookahead.h"

/// How well the law of lookahead decoding predicts what its fit has not seen.
namespace speclab::theory {

/// How far predictions are off.
struct LookaheadTest {
  int predictions = 0;
  double error = 0;       ///< median of |predicted / measured - 1|
  double mean_error = 0;  ///< the same when the mean S of the fitted cells is the prediction
};

/// One way to leave cells out of the fit.
struct LookaheadHoldOut {
  /// "prompts": no cell is left out, only prompts. "cells": every other cell in the order of their rows; a
  /// cell that is left out has a near twin in the fit. "W", "N", "G": all cells with one value of it, so that
  /// a whole row or column of the grid is new.
  std::string what;
  /// [cells]: S from a fit without the cell, over all prompts; absent where too few cells are left. Empty for
  /// "prompts".
  std::vector<std::optional<double>> predicted;
  /// [cells]: the cell lies in the convex hull of the fitted cells (in W, N and G). False: extrapolation.
  std::vector<bool> interpolated;
  /// Fit and test share the prompts. Absent for "prompts".
  std::optional<LookaheadTest> same_prompts;
  /// The law is fitted on one half of the prompts and tested on the other, both ways round. Absent with fewer
  /// than two prompts.
  std::optional<LookaheadTest> other_prompts;
};

/// All ways that the grid allows: W, N or G only where it takes several values; G only where it is not W
/// everywhere. Empty with fewer than six cells.
std::vector<LookaheadHoldOut> hold_out_lookahead(std::span<const LookaheadCell> cells);

/// Whether `shape` is a weighted mean of `points`.
bool in_hull(std::span<const LookaheadShape> points, const LookaheadShape& shape);

}  // namespace speclab::theory
