#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

namespace speclab {

/// How slow the machine was in each of these calibration rounds: the time of a forward over its mean in all of them, the
/// mean of that ratio over the numbers of rows that all rounds measured. Above 1 = slow; 1 where there is no such number.
std::vector<double> round_factors(std::span<const nlohmann::json* const> rounds);

/// The same while a line was measured, by the rounds next to it. On a shared host a forward takes twice as long in one
/// second as in another; cases whose lines fell into slow seconds look slow, and no mean over the run can say so.
class MachineDrift {
 public:
  /// `rounds`: of calibration.jsonl. Knows nothing where several shards measured: lines do not say whose rounds were near.
  explicit MachineDrift(std::span<const nlohmann::json> rounds);
  bool known() const { return !factors_.empty(); }
  /// Of a line with so many rounds before it: the mean of the last of them and the next one. Absent for -1 and where
  /// nothing is known.
  std::optional<double> behind(int rounds) const;

 private:
  std::vector<double> factors_;  ///< [rounds]
};

}  // namespace speclab
