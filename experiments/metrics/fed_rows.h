#pragma once

#include <span>
#include <vector>

#include "core/theory/explain.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// The rows that the steps of one prompt fed to the target, in repeat 0.
struct FedRows {
  /// Entry n is the number of steps with n rows. `rows` counts all rows of a step; `window` counts the rows
  /// that are not candidates (tokens that may be accepted), at least 1.
  theory::DraftLengths window, rows;
  double steps = 0, tokens = 0, drafted = 0;
};

std::vector<FedRows> fed_rows(const CaseData& data);  ///< [prompts]

/// The input of theory::explain_rows over the prompts with these indices. tau is 0 when they have no steps;
/// law, speedup and drift are left to the caller.
theory::RowsExplainInput rows_input(const std::vector<FedRows>& fed, std::span<const std::size_t> prompts,
                                    const theory::Calibration& calibration, double equivalent_share);

}  // namespace speclab
