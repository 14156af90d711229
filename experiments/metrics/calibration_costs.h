#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

namespace speclab {

/// Costs of a step besides the target's forward, fitted to steps: ns = constant + slope x count, both at
/// least 0.
struct LinearCost {
  double constant = 0, slope = 0;
};
/// Least squares; one count alone gives slope only, through the origin unless the count is 0. Means
/// without the smallest and largest 5 %.
LinearCost fit_cost(const std::multimap<int, double>& samples);

/// `calibration` of summary.json, made of the rounds in calibration.jsonl: a forward is the mean of its
/// measurements without the smallest and largest 5 %, the costs of a step are fitted to all steps of a case,
/// each time over the slowness of the machine in its round (round_factors), a case that failed once is null.
/// Null without rounds.
nlohmann::json calibration_costs(std::span<const nlohmann::json> rounds);

/// `count` tables like it, each of as many rounds as were measured, drawn with repetition (bootstrap): how
/// far the costs could be off by chance. None with fewer than two rounds. A pure function of its arguments.
std::vector<nlohmann::json> resampled_costs(std::span<const nlohmann::json> rounds, int count);

}  // namespace speclab
