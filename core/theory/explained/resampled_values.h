#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/measure/stats.h"

namespace speclab::theory {

/// Collects the values of bootstrap resamples by name and gives their 95 % percentile intervals (Efron 1979).
/// stats::bootstrap_interval does this for one value. This class is for values that one resample gives
/// together, such as the terms of a waterfall.
class ResampledValues {
 public:
  /// Adds a resample. It may lack a name that other resamples have.
  void add(const std::map<std::string, double>& values);
  /// Adds a resample that has no values, for example because it has no tokens.
  void add_undefined() { ++undefined_; }
  /// The interval of a value. Resamples without this name count as `otherwise`. Values that are not finite
  /// are left out. Absent if no resample has the name, and when more than half of the resamples have no
  /// value.
  std::optional<stats::Interval> interval(const std::string& name, double otherwise = 0) const;

 private:
  std::size_t defined_ = 0, undefined_ = 0;
  std::map<std::string, std::vector<double>> values_;  ///< by name, of the defined resamples that have it
};

}  // namespace speclab::theory
