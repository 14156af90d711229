#pragma once

#include <vector>

#include "core/theory/explain.h"

namespace speclab {

struct Replayed;

/// The times of steps with chains of every length, computed once from calibrated costs. The time of a text is
/// then a sum over its steps. Totals agree with theory::calibrated_step(). All times are in nanoseconds.
class StepPrices {
 public:
  /// Prices drafts of up to `longest` tokens. Throws Error for costs that theory::calibrated_step() refuses.
  StepPrices(const theory::Calibration& costs, int longest);
  double reference() const { return reference_; }  ///< an autoregressive step, which emits one token
  /// A step that drafts `drafted` tokens and emits `emitted`.
  double step(int drafted, int emitted) const {
    return by_length_[static_cast<std::size_t>(drafted)] + token_ * emitted;
  }
  double time(const Replayed& counts) const;  ///< all steps of a replay
  /// The draft time of a step in which the drafter is asked and finds nothing.
  double asked() const { return asked_; }
  int longest() const { return static_cast<int>(by_length_.size()) - 1; }

 private:
  double reference_;
  std::vector<double> by_length_;  // [longest + 1], without what a step costs for each emitted token
  double token_;                   // cost of a step for each emitted token
  double asked_;
};

}  // namespace speclab
