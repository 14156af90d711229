#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/backend/cuda/runtime/device.h"
#include "core/backend/kernel_trials.h"

// Internal to the files of this folder.

namespace speclab::cuda {

/// (out, in) of weight matrices.
using Shapes = std::vector<std::pair<int, int>>;

/// A device with a timer.
class Stand {
 public:
  explicit Stand(std::unique_ptr<Device> device)
      : device_(std::move(device)), timer_(device_->make_timer()) {}
  Device& device() const { return *device_; }
  bool simulated() const { return device_->simulated(); }
  /// Seconds of one of many launches that follow each other without a wait. `launch(i)` starts the i-th.
  double time(const std::function<void(int)>& launch) const;

 private:
  double batch(int count, const std::function<void(int)>& launch) const;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceTimer> timer_;
};
using StandPtr = std::shared_ptr<Stand>;

/// "cublaslt/rows:n/out:m/in:k": y = W x by the toolkit's library, with the fastest algorithm that it
/// proposes.
void add_cublaslt_trials(int ordinal, const Shapes& shapes, const std::vector<int>& rows,
                         std::vector<KernelTrial>& trials);

}  // namespace speclab::cuda
