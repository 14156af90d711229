#pragma once

#include <string>

#include "core/backend/device_status.h"

namespace speclab::cuda {

/// Reads the state of one GPU with NVML, the driver's management library. The library is loaded when it is
/// first used, so the program runs without it.
class GpuStatus final : public DeviceStatus {
 public:
  explicit GpuStatus(int ordinal) : ordinal_(ordinal) {}
  nlohmann::json state() const override;
  std::string uuid() const override;
  std::unique_ptr<DeviceWatch> watch() const override;
  double measure_copy_bandwidth() const override;
  void profile(bool begin) const override;

 private:
  int ordinal_;
};

}  // namespace speclab::cuda
