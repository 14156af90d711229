#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <vector>

#include "core/measure/run_result.h"
#include "core/theory/step_costs.h"

namespace speclab {

/// How slow the machine was in each of these calibration rounds: the time of a forward over its mean in all
/// of them, the mean of that ratio over the numbers of rows that all rounds measured. Above 1 = slow; 1 where
/// there is no such number.
std::vector<double> round_factors(std::span<const nlohmann::json* const> rounds);

/// The same while a line was measured, by the calibration's own forwards between its steps or by the rounds
/// next to it. On a shared host a forward takes twice as long in one second as in another; cases whose lines
/// fell into slow seconds look slow, and no mean over the run can say so.
class MachineDrift {
 public:
  /// `rounds`: of calibration.jsonl. Knows nothing where several shards measured: lines do not say whose
  /// rounds were near.
  explicit MachineDrift(std::span<const nlohmann::json> rounds);
  bool known() const { return !factors_.empty(); }
  /// How much more time the rounds took in the slowest third of the run than in the fastest one, as a share.
  /// Absent with fewer than two rounds in each.
  std::optional<double> across_run() const;
  /// Of a line: the mean of the forwards between its steps, each over what `target` (ns) says of as many
  /// rows; where there were none, by the last round before it and the next one. Absent when it knows of
  /// neither.
  std::optional<double> during(const LineRecord& line, const theory::RowTimes& target) const;

 private:
  std::vector<double> factors_;  ///< [rounds]
};

}  // namespace speclab
