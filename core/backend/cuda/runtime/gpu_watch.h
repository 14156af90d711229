#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace speclab::cuda {

/// What NVML said of a GPU over some time.
struct GpuUse {
  double seconds = 0;
  double joules = -1;  ///< of the whole device; -1: it does not say
  std::string energy;  ///< "counter": the device's own counter; "power": samples of its power, integrated;
                       ///< "": neither
  int other_processes = 0;             ///< that computed on it at the beginning or the end
  std::vector<std::string> slowed_by;  ///< why clocks were lower than they could be, at the end
};

/// Watches one GPU from begin() to end(), again and again. The counter of energy is read twice; only on a GPU
/// that has none a thread samples the power between the two. Costs about a millisecond at either end, nothing
/// in between otherwise.
class GpuWatch {
 public:
  /// `bus_id`: "0000:65:00.0". Without NVML or the GPU end() says nothing but the time.
  explicit GpuWatch(const std::string& bus_id, const char* library = "libnvidia-ml.so.1",
                    std::chrono::milliseconds period = std::chrono::milliseconds(10));
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  const std::string& problem() const;  ///< why NVML says nothing; "": it does
  void begin();
  GpuUse end();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace speclab::cuda
