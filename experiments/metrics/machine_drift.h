#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <vector>

#include "core/measure/run_result.h"
#include "core/theory/step_costs.h"

namespace speclab {

/// Returns how slow the machine was in each of these calibration rounds, as a factor. The factor is the time
/// of a forward divided by the mean time of that forward over all rounds. It is averaged over the sizes of
/// forwards that every round measured. A factor above 1 means that the machine was slow. All factors are 1
/// when no size was measured in every round. `of_device`: by the times of the device's clock.
std::vector<double> round_factors(std::span<const nlohmann::json* const> rounds, bool of_device = false);

/// Tells how slow the machine was while a line was measured. On a shared host, a forward can take twice as
/// long in one second as in another. A case whose lines fell into slow seconds looks slow, and no mean over
/// the run shows that. The answer comes from the forwards that were timed between the steps of the line, or
/// from the calibration rounds next to it.
class MachineDrift {
 public:
  /// `rounds`: the lines of calibration.jsonl. If the run was measured in several shards (parts, see Shard in
  /// experiments/run/run_plan.h), the rounds tell nothing, because a line does not say which shard's rounds
  /// were near it.
  explicit MachineDrift(std::span<const nlohmann::json> rounds);
  /// How much longer the rounds took in the slowest third of the run than in the fastest third: 0.1 means
  /// 10 % longer. Absent with fewer than two rounds in each third.
  std::optional<double> across_run() const;
  /// Returns the factor of a line. If forwards were timed between the steps of the line, each time is divided
  /// by the time that `target` (ns) gives for as many rows, and the factor is the mean of these ratios.
  /// Otherwise it is the mean factor of two rounds, the last one before the line and the next one. Absent
  /// when no forwards were timed and the rounds tell nothing, or the line does not say how many of them came
  /// before it.
  std::optional<double> during(const LineRecord& line, const theory::RowTimes& target) const;

 private:
  std::vector<double> factors_;  ///< [rounds]
};

}  // namespace speclab
