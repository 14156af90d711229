#pragma once

#include <cstdint>
#include <cstring>

#include "core/base/exp_log.h"

// Float arithmetic for sampling. The host and the GPU compile the same code, and results have the same bits
// on both. No multiply-add is fused. The vector loops in core/decoding/rows/row_kernels.cpp and
// noise_kernels.cpp do the same operations in the same order.

namespace speclab {

SPECLAB_EXACT std::uint32_t exact_bits(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
SPECLAB_EXACT float exact_float(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// exp(x) for x <= 0; 0 for x below -87.
SPECLAB_EXACT float exp_nonpositive(float x) {
  const float clamped = x > -100.0f ? x : -100.0f;
  const float magic = 12582912.0f;  // adding 1.5 * 2^23 rounds to the nearest integer
  const float shifted = clamped * 1.44269504f + magic;
  const float whole = shifted - magic;
  float r = clamped - whole * 0.693359375f;
  r = r - whole * -2.12194440e-4f;
  const float r2 = r * r;
  const float low = (1.0f / 6 * r + 0.5f) * r2 + (1.0f * r + 1.0f);
  const float high = (1.0f / 5040 * r + 1.0f / 720) * r2 + (1.0f / 120 * r + 1.0f / 24);
  const float y = high * (r2 * r2) + low;
  const float power = exact_float((exact_bits(shifted) + 127u) << 23);
  return x >= -87.0f ? y * power : 0.0f;
}

/// log(1 + t) for 1 + t in [sqrt(1/2), sqrt(2)].
SPECLAB_EXACT float log1p_reduced(float t) {
  const float s = t / (t + 2.0f), s2 = s * s;
  float y = 1.0f / 9;
  y = y * s2 + 1.0f / 7;
  y = y * s2 + 1.0f / 5;
  y = y * s2 + 1.0f / 3;
  y = y * s2 + 1.0f;
  return (s + s) * y;
}

/// (x + 1/2) / 2^32.
SPECLAB_EXACT float fraction_of(std::uint32_t x) {
  const auto high = static_cast<float>(static_cast<std::int32_t>(x >> 16)),
             low = static_cast<float>(static_cast<std::int32_t>(x & 0xffffu));
  return (high * 65536.0f + (low + 0.5f)) * 0x1p-32f;
}

/// A number with the standard exponential distribution, made from 32 random bits: -log(1 - (x + 1/2) / 2^32).
SPECLAB_EXACT float exponential(std::uint32_t x) {
  const float v = fraction_of(x), w = fraction_of(~x);
  const auto shifted = static_cast<std::int32_t>(exact_bits(w) - 0x3f3504f3u);  // bits of sqrt(1/2)
  const std::int32_t e = shifted >> 23;
  const float mantissa = exact_float(exact_bits(w) - (static_cast<std::uint32_t>(e) << 23));
  const auto ef = static_cast<float>(e);
  const float t = ef == 0.0f ? -v : mantissa - 1.0f;
  return -(ef * 0.693147181f + log1p_reduced(t));
}

/// The arrival time of a token with this positive weight: exponential() / weight. Each token of a row arrives
/// first with a probability proportional to its weight (Gumbel-max trick).
SPECLAB_EXACT float arrival(std::uint32_t random_bits, float weight) {
  return exponential(random_bits) / weight;
}

}  // namespace speclab
