#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "core/backend/device_status.h"

namespace speclab::cuda {

/// Watches one GPU with NVML. It reads the GPU's energy counter at begin() and at end(); on a GPU without a
/// counter, a thread samples the power in between.
class GpuWatch final : public DeviceWatch {
 public:
  /// `bus_id`: "0000:65:00.0". If NVML or the GPU is missing, end() reports only the time.
  explicit GpuWatch(const std::string& bus_id, const char* library = "libnvidia-ml.so.1",
                    std::chrono::milliseconds period = std::chrono::milliseconds(10));
  ~GpuWatch() override;
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  const std::string& problem() const;  ///< why NVML cannot be used; "" if it works
  void begin() override;
  DeviceUse end() override;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace speclab::cuda
