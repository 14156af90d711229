#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "core/backend/cuda/gpu.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/machine.h"
#include "core/base/bf16.h"
#include "tests/backend/numbers.h"

// Arrays in the memory of a GPU, simulated or not, and numbers to fill them with.

namespace speclab::cuda {

/// Where a kernel under test runs: a simulated GPU or a real one, which outlives it.
class Place {
 public:
  Place(simt::Machine& machine) : machine_(&machine) {}
  Place(Gpu& gpu) : gpu_(&gpu) {}
  simt::Machine* machine() const { return machine_; }
  Stream stream() const { return gpu_ != nullptr ? Stream{.device = gpu_->stream()} : Stream{.machine = machine_}; }
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

 private:
  simt::Machine* machine_ = nullptr;
  Gpu* gpu_ = nullptr;
};

template <typename T>
class DeviceArray {
 public:
  DeviceArray(const Place& place, std::size_t count) : place_(place), count_(count), memory_(place.allocate(count * sizeof(T))) {}
  DeviceArray(const Place& place, const std::vector<T>& values) : DeviceArray(place, values.size()) {
    place_.upload(values.data(), count_ * sizeof(T), data());
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return static_cast<T*>(memory_.get()); }
  /// One element, fetched.
  T operator[](std::size_t i) const {
    T value;
    place_.download(data() + i, sizeof(T), &value);
    return value;
  }
  std::vector<T> host() const {
    std::vector<T> values(count_);
    place_.download(data(), count_ * sizeof(T), values.data());
    return values;
  }

 private:
  Place place_;
  std::size_t count_;
  std::shared_ptr<void> memory_;
};

using fixtures::normal_numbers;
using fixtures::same_bits;

}  // namespace speclab::cuda
