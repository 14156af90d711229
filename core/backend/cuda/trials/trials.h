#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/backend/cuda/runtime/device.h"
#include "core/backend/kernel_trials.h"

// What the trials of GPU kernels (core/backend/kernel_trials.h) share: a device with a timer, and the shapes
// of products. In core, only the files of this folder include this header.

namespace speclab::cuda {

/// Sizes of weight matrices: (outputs, inputs).
using Shapes = std::vector<std::pair<int, int>>;

/// A device with a timer.
class Stand {
 public:
  explicit Stand(std::unique_ptr<Device> device)
      : device_(std::move(device)), timer_(device_->make_timer()) {}
  Device& device() const { return *device_; }
  bool simulated() const { return device_->simulated(); }
  /// Runs launches without a wait between them, for about 2 ms but at most 500 of them (on the simulated GPU
  /// only one), and returns the mean seconds of a launch. `launch(i)` starts launch i, from 0 on. The first
  /// launch of a kernel loads its code, so time() calls launch(0) once before the measurement.
  double time(const std::function<void(int)>& launch) const;

 private:
  double batch(int count, const std::function<void(int)>& launch) const;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceTimer> timer_;
};
using StandPtr = std::shared_ptr<Stand>;

/// Adds the trials "cublaslt/rows:n/out:m/in:k". Each trial measures the product y = W x by cuBLASLt, with
/// the fastest algorithm that this library proposes.
void add_cublaslt_trials(int ordinal, const Shapes& shapes, const std::vector<int>& rows,
                         std::vector<KernelTrial>& trials);

}  // namespace speclab::cuda
