#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/machine.h"
#include "core/base/bf16.h"
#include "tests/backend/numbers.h"

// Arrays in the memory of a simulated GPU, and numbers to fill them with.

namespace speclab::cuda {

template <typename T>
class DeviceArray {
 public:
  DeviceArray(simt::Machine& machine, std::size_t count) : machine_(machine), count_(count), data_(machine.allocate_array<T>(count)) {}
  DeviceArray(simt::Machine& machine, const std::vector<T>& values) : DeviceArray(machine, values.size()) {
    std::memcpy(data_, values.data(), count_ * sizeof(T));
  }
  ~DeviceArray() { machine_.release(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  T operator[](std::size_t i) const { return data_[i]; }
  std::vector<T> host() const { return {data_, data_ + count_}; }

 private:
  simt::Machine& machine_;
  std::size_t count_;
  T* data_;
};

using fixtures::normal_numbers;
using fixtures::same_bits;

}  // namespace speclab::cuda
