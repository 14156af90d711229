#pragma once

#include <map>

#include "core/simulate/virtual_device.h"
#include "core/theory/step_costs.h"

namespace speclab::simulate {

/// Prices forwards with times that were measured on the device, by number of rows. The times hold for the
/// context at which they were measured; another context is not priced. A batch of b sequences of n rows costs
/// what one sequence of b n rows costs: the reads of further KV caches are left out.
class RowTables final : public VirtualDevice {
 public:
  /// `times`: nanoseconds by number of rows, for the target ("") and for draft models by name. Throws Error
  /// (`where` names the device) without times of the target, or for a step_ns that is negative or infinite.
  RowTables(std::map<std::string, theory::RowTimes> times, double step_ns, const std::string& where);
  double forward_ns(const Forward& forward) const override;
  double step_ns() const override { return step_ns_; }

 private:
  std::map<std::string, theory::RowTimes> times_;
  double step_ns_;
  std::string where_;
};

}  // namespace speclab::simulate
