#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/machine.h"
#include "core/base/bf16.h"

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

inline std::vector<float> normal_floats(std::size_t count, unsigned seed, float spread = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> out(count);
  for (float& value : out) value = normal(generator);
  return out;
}

/// The first `count` elements have the same bits.
template <typename T>
bool same_bits(const T* a, const T* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof(T)) == 0;
}

}  // namespace speclab::cuda
