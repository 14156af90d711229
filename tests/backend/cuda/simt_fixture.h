#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tests/backend/cuda/place.h"
#include "core/base/bf16.h"
#include "tests/backend/numbers.h"

// Arrays in the memory of a real or simulated GPU, and numbers to fill them.

namespace speclab::cuda {

template <typename T>
class DeviceArray {
 public:
  DeviceArray(const Place& place, std::size_t count)
      : place_(place), count_(count), memory_(place.allocate(count * sizeof(T))) {}
  DeviceArray(const Place& place, const std::vector<T>& values) : DeviceArray(place, values.size()) {
    place_.upload(values.data(), count_ * sizeof(T), data());
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return static_cast<T*>(memory_.get()); }
  /// Fetches one element.
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
