#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace speclab {

/// The measured costs from which a budget chooses the size of a draft. They are measured once, before the
/// first text, and kept with the record. So a text depends on config, seed and this table, never on the
/// clock.
struct StepCosts {
  /// target_ns[n - 1]: time of a target forward over n rows, in ns. Not empty, positive, and it never falls
  /// as n grows.
  std::vector<double> target_ns;

  /// Time of a forward over n >= 1 rows. Beyond the table the slope of the table's second half continues.
  double target(int rows) const {
    const std::size_t n = static_cast<std::size_t>(rows), size = target_ns.size();
    if (n <= size) return target_ns[n - 1];
    if (size == 1) return target_ns[0];
    const std::size_t from = (size - 1) / 2;
    const double slope = (target_ns.back() - target_ns[from]) / static_cast<double>(size - 1 - from);
    return target_ns.back() + slope * static_cast<double>(n - size);
  }
};

}  // namespace speclab
