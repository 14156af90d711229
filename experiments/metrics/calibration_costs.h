#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "core/theory/step_costs.h"

namespace speclab {

/// The cost of a part of a step, such as drafting: ns = constant + slope x count. Neither is below 0.
struct LinearCost {
  double constant = 0, slope = 0;
};
/// Fits a cost to (count, ns) samples by least squares over the mean of each count; a mean leaves out the
/// smallest and largest 5 %. If all samples have the same count, the line goes through the origin, or is
/// constant when that count is 0.
LinearCost fit_cost(const std::multimap<int, double>& samples);

/// Makes "calibration" of summary.json, a table of costs, from the rounds in calibration.jsonl. Every time is
/// first divided by how slow the machine was in its round (round_factors). The time of a forward is then the
/// mean of its measurements without the smallest and largest 5 %. The costs of a step are fitted to all steps
/// of a case. A case that failed once is null. Null without rounds.
nlohmann::json calibration_costs(std::span<const nlohmann::json> rounds);

/// Makes `count` such tables to show how far the costs could be off by chance (bootstrap). Each comes from as
/// many rounds as were measured, drawn with repetition. Empty with fewer than two rounds. A pure function of
/// its arguments.
std::vector<nlohmann::json> resampled_costs(std::span<const nlohmann::json> rounds, int count);

/// The t(n) of a calibration table. It goes on beyond the largest measured n with the slope of the line
/// through the upper three quarters of the measured n; the last two points alone differ by little more than
/// noise.
theory::RowTimes calibrated_row_times(const nlohmann::json& calibration);

}  // namespace speclab
