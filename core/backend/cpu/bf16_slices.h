#pragma once

#include <algorithm>

#include "core/backend/cpu/bf16_units.h"

// Private to the kernels of bf16_units.h.

namespace speclab::cpu {

void avx512_slice(const Bf16Slice& slice);           ///< needs supported(Bf16Unit::kAvx512)
void avx512_slice_emulated(const Bf16Slice& slice);  ///< needs AVX2 and FMA, like class f32
void amx_slice(const Bf16Slice& slice);              ///< needs supported(Bf16Unit::kAmx)
void amx_slice_emulated(const Bf16Slice& slice);

double avx512_rounds(std::int64_t rounds);           ///< bf16_unit_rounds()
double amx_rounds(std::int64_t rounds);

/// Puts one row of a panel's sums, of which `width` exist, where it belongs.
inline void put_sums(const float* sums, int width, float* y, bool accumulate) {
  if (accumulate) {
    for (int i = 0; i < width; ++i) y[i] += sums[i];
  } else {
    std::copy(sums, sums + width, y);
  }
}

}  // namespace speclab::cpu
