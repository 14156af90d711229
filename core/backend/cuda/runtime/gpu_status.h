#pragma once

#include <string>

#include "core/backend/device_status.h"

namespace speclab::cuda {

/// The state of one GPU, from NVML, the driver's management library. It is loaded when it is first used, so
/// the program does not need it.
class GpuStatus final : public DeviceStatus {
 public:
  explicit GpuStatus(int ordinal) : ordinal_(ordinal) {}
  nlohmann::json state() const override;
  std::unique_ptr<DeviceWatch> watch() const override;
  double measure_copy_bandwidth() const override;

 private:
  int ordinal_;
};

}  // namespace speclab::cuda
