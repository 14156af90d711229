#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "core/theory/lookahead.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// A setting of lookahead decoding and what the fitted law predicts for it.
struct LookaheadPrediction {
  theory::LookaheadShape shape;
  double tau = 1, speedup = 1;
  nlohmann::json tau_ci95 = nullptr, speedup_ci95 = nullptr;  ///< [lo, hi] by a bootstrap over prompts | null
};

/// Searches W = G and N by the law of lookahead decoding (Fu et al. 2024, Eq. 5 and 7). The law is fitted to
/// the largest group of cases of the run `grid` that differ in W, N and G alone. The time of a step is
///
///   t(rows) + the mean time of the fitted cases' steps outside the target's forward,
///
/// both from the calibration. A step has at most (W + G)(N - 1) rows; rows is this number times the mean of
/// row_equivalents() / ((W + G)(N - 1)) over the fitted cases. Each resample of the bootstrap fits the law
/// anew; the times are not drawn again. The search is limited to settings with (W + G)(N - 1) <= `most_rows`,
/// N from 2 to 8 and W up to 64.
///
/// Returns the `count` fastest settings, fastest first. Empty without a calibration of the fitted cases, and
/// if no two cases differ in W, N and G alone.
std::vector<LookaheadPrediction> search_lookahead(const RunData& grid, int most_rows, int count);

}  // namespace speclab
