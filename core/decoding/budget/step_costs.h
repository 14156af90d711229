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
  std::vector<double> target_ns{};
  /// draft_ns[n - 1]: the same for the draft model; with several draft models, for the first one. Empty if
  /// the case has no draft model.
  std::vector<double> draft_ns{};
  /// further_draft_ns[i]: the same for draft model i + 1 of the case. The first draft model has number 0.
  std::vector<std::vector<double>> further_draft_ns{};
  /// For drafts of the target itself: the time that one layer takes in a target forward over one row. -1: the
  /// table does not have it.
  double layer_ns = -1;
  /// The time that one more cached position adds to a target forward over one row.
  double position_ns = 0;
  /// The number of cached positions at which all times were measured.
  int context = 0;

  /// Time of a target forward over n >= 1 rows. Beyond the table the slope of the table's second half
  /// continues; a table with a single entry is constant.
  double target(int rows) const { return at(target_ns, rows); }
  /// Time of a forward of the draft model over n >= 1 rows, continued in the same way. The table must have
  /// times of the draft model, see require_draft_costs().
  double draft(int rows) const { return at(draft_ns, rows); }
  /// The costs of a case whose only draft model is the draft model i (from 0) of this table. The result's
  /// draft_ns is empty if the table has no times of that model.
  StepCosts with_draft(std::size_t i) const {
    StepCosts one = *this;
    if (i > 0) one.draft_ns = i <= further_draft_ns.size() ? further_draft_ns[i - 1] : std::vector<double>();
    one.further_draft_ns.clear();
    return one;
  }

 private:
  static double at(const std::vector<double>& ns, int rows) {
    const std::size_t n = static_cast<std::size_t>(rows), size = ns.size();
    if (n <= size) return ns[n - 1];
    if (size == 1) return ns[0];
    const std::size_t from = (size - 1) / 2;
    const double slope = (ns.back() - ns[from]) / static_cast<double>(size - 1 - from);
    return ns.back() + slope * static_cast<double>(n - size);
  }
};

}  // namespace speclab
