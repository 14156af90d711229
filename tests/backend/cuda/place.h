#pragma once

#include <cstring>
#include <memory>

#include "core/backend/cuda/runtime/gpu.h"
#include "core/backend/cuda/launch/launch.h"
#include "core/backend/cuda/simulator/machine.h"

namespace speclab::cuda {

/// The GPU on which tests and benchmarks start single kernels, simulated or real. The GPU must outlive this
/// object.
class Place {
 public:
  Place(simt::Machine& machine) : machine_(&machine) {}
  Place(Gpu& gpu) : gpu_(&gpu) {}
  simt::Machine* machine() const { return machine_; }
  Stream stream() const { return gpu_ != nullptr ? gpu_->stream() : Stream{.machine = machine_}; }
  std::shared_ptr<void> allocate(std::size_t bytes) const {
    if (gpu_ != nullptr) return gpu_->allocate(bytes);
    return {machine_->allocate(bytes), [machine = machine_](void* p) { machine->release(p); }};
  }
  void upload(const void* host, std::size_t bytes, void* to) const {
    if (gpu_ != nullptr) gpu_->upload(host, bytes, to);
    else if (bytes > 0) std::memcpy(to, host, bytes);
  }
  void download(const void* from, std::size_t bytes, void* host) const {
    if (gpu_ != nullptr) gpu_->download(from, bytes, host);
    else if (bytes > 0) std::memcpy(host, from, bytes);
  }
  void copy(const void* from, std::size_t bytes, void* to) const {
    if (gpu_ != nullptr) gpu_->copy(from, bytes, to);
    else if (bytes > 0) std::memcpy(to, from, bytes);
  }

 private:
  simt::Machine* machine_ = nullptr;
  Gpu* gpu_ = nullptr;
};

}  // namespace speclab::cuda
