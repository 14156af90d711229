#pragma once

#include <bit>
#include <cstdint>

namespace speclab {

/// bfloat16 as its bit pattern: the upper half of a float.
using Bf16 = std::uint16_t;

inline float bf16_to_float(Bf16 value) { return std::bit_cast<float>(std::uint32_t{value} << 16); }

/// Rounds to nearest, ties to even. NaN stays NaN (made quiet); infinities stay infinities.
inline Bf16 float_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<Bf16>((bits >> 16) | 0x40u);
  return static_cast<Bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace speclab
