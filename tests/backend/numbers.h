#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "core/backend/backend.h"

namespace speclab::fixtures {

/// `count` normal numbers with standard deviation `spread`, the same for the same seed.
inline std::vector<float> normal_numbers(std::size_t count, unsigned seed, float spread = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

/// Packs the matrix rows [out][in] in the backend's layout.
inline PackedMatrix pack(Backend& backend, int out, int in, const std::vector<Bf16>& rows) {
  return backend.pack(out, in, [&](int begin, int end, Bf16* to) {
    std::copy(rows.begin() + begin * in, rows.begin() + end * in, to);
  });
}

/// True if the numbers have the same bits: -0 differs from 0, and a NaN equals itself.
template <typename T>
bool same_bits(const T* a, const T* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof(T)) == 0;
}
inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), a.size());
}

}  // namespace speclab::fixtures
