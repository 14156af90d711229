#pragma once

#include "core/simulate/virtual_device.h"

namespace speclab::simulate {

/// Time of a forward as a linear function: constant + per_row n + per_key k, with n rows and k committed
/// tokens, both summed over the sequences of the batch. All in nanoseconds.
struct LinearTime {
  double constant_ns = 0, per_row_ns = 0, per_key_ns = 0;
};

/// Prices forwards with a fit that somebody published for one target and one draft on one device. The shapes
/// of the run's models do not matter: the run's target gets the times of the fit's target, and each draft
/// model of the run gets the times of the fit's draft. So a prediction says how fast the models of the fit
/// would be with the acceptance of the run.
class LinearTimes final : public VirtualDevice {
 public:
  /// Throws Error (`where` names the device) unless all numbers are finite, the constants are positive and
  /// the other numbers are not negative.
  LinearTimes(const LinearTime& target, const LinearTime& draft, double step_ns, const std::string& where);
  double forward_ns(const Forward& forward) const override;
  double step_ns() const override { return step_ns_; }

 private:
  LinearTime target_, draft_;
  double step_ns_;
};

}  // namespace speclab::simulate
