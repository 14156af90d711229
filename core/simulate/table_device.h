#pragma once

#include <map>
#include <string>

#include "core/simulate/virtual_device.h"
#include "core/theory/step_costs.h"

namespace speclab::simulate {

/// Times of the forwards of one model by number of rows, measured at one or several contexts.
class ContextTimes {
 public:
  /// Uses the same times at every context. The context at which they were measured need not be known.
  ContextTimes(theory::RowTimes times);  // NOLINT: a table of one context is a table of contexts
  /// Takes times by number of committed tokens. Throws Error if there are none, and for a context that is
  /// negative or not finite.
  explicit ContextTimes(std::map<double, theory::RowTimes> by_context);

  /// The time of `rows` rows after `context` committed tokens, linear between the measured contexts, because
  /// the reads of the KV cache grow in proportion to the context. Above the last measured context, the last
  /// slope continues; if it is negative, the time stays constant. Below the first, the time stays constant.
  double at(int rows, double context) const;

 private:
  std::map<double, theory::RowTimes> by_context_;
};

/// Prices forwards with times that were measured on the device, by number of rows and by context.
///
/// The times were measured with one sequence. A batch of b sequences with n rows each pays for b n rows of
/// one sequence, and for the reads of the b - 1 further KV caches. The time of these reads is their bytes
/// (from the shape of the model) divided by the device's bandwidth.
class RowTables final : public VirtualDevice {
 public:
  /// `times`: nanoseconds for the target ("") and for draft models by name. `bytes_per_second`: memory
  /// bandwidth; 0: not known, and the device then refuses a batch with a context. Throws Error (`where` names
  /// the device) without times of the target, and for a step_ns or a bandwidth that is negative or not
  /// finite.
  RowTables(std::map<std::string, ContextTimes> times, double step_ns, const std::string& where,
            double bytes_per_second = 0);
  double forward_ns(const Forward& forward) const override;
  double step_ns() const override { return step_ns_; }

 private:
  double further_caches_ns(const Forward& forward) const;

  std::map<std::string, ContextTimes> times_;
  double step_ns_, bytes_per_second_;
  std::string where_;
};

}  // namespace speclab::simulate
