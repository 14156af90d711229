#pragma once

#include "core/simulate/virtual_device.h"

namespace speclab::simulate {

/// Time of a forward as a linear function: constant + per_row n + per_key k, with n rows and k committed
/// tokens, both summed over the sequences of the batch. All in nanoseconds.
struct LinearTime {
  double constant_ns = 0, per_row_ns = 0, per_key_ns = 0;
};

/// Prices forwards with a fit that somebody published for one target and one draft on one device. It knows
/// nothing of shapes: the run's target gets the times of the fit's target, and each of its draft models
/// gets those of the fit's draft. So its result says what the run's acceptance would be worth to the models
/// of the fit.
class LinearTimes final : public VirtualDevice {
 public:
  /// Throws Error (`where` names the device) unless the constants are positive and the other numbers are
  /// not negative.
  LinearTimes(const LinearTime& target, const LinearTime& draft, double step_ns, const std::string& where);
  double forward_ns(const Forward& forward) const override;
  double step_ns() const override { return step_ns_; }

 private:
  LinearTime target_, draft_;
  double step_ns_;
};

}  // namespace speclab::simulate
