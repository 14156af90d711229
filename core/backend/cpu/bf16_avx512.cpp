// All headers must be included before the pragmas below. Otherwise library templates would be compiled for
// AVX-512 here, and the linker could keep these copies for the whole program, also on CPUs without AVX-512.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/backend/cpu/bf16_slices.h"

namespace speclab::cpu {

#if defined(__clang__)  // clang ignores GCC's pragmas
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512bf16")
#endif
namespace {
namespace hardware {

using Vector = __m512;
inline Vector zero() { return _mm512_setzero_ps(); }
inline Vector dot(Vector sum, const Bf16* weights, std::int32_t pair) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_loadu_si512(weights)),
                          reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)));
}
inline Vector load(const float* from) { return _mm512_load_ps(from); }
inline void store(Vector v, float* to) { _mm512_store_ps(to, v); }

#include "core/backend/cpu/bf16_avx512-inl.h"
#include "core/backend/cpu/bf16_attention-inl.h"

}  // namespace hardware
}  // namespace

void avx512_slice(const Bf16Slice& slice) { hardware::dot_slice(slice); }
void avx512_scores(const BlockOfScores& scores) { hardware::scores(scores); }
void avx512_values(const BlockOfValues& values) { hardware::values(values); }

double avx512_rounds(std::int64_t rounds) {
  constexpr int kSums = 16;  // enough to keep two units busy at a latency of six cycles
  __m512 sums[kSums];
  const __m512i zeros = _mm512_setzero_si512();
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (auto& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(zeros), reinterpret_cast<__m512bh>(zeros));
      asm volatile("" : "+v"(sum));  // keeps the compiler from removing the instruction
    }
  }
  return static_cast<double>(rounds) * kSums * 64;
}
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace {
namespace emulation {

struct Vector {
  float lane[16];
};
inline Vector zero() { return {}; }
inline float flush(float value) { return std::fabs(value) < FLT_MIN ? std::copysign(0.0f, value) : value; }
inline float widen(std::uint32_t upper_half) { return flush(std::bit_cast<float>(upper_half << 16)); }
inline Vector dot(Vector sum, const Bf16* weights, std::int32_t pair) {
  const auto bits = static_cast<std::uint32_t>(pair);
  const float second = widen(bits >> 16), first = widen(bits & 0xffff);
  for (int i = 0; i < 16; ++i) {
    const float once = flush(__builtin_fmaf(widen(weights[2 * i + 1]), second, sum.lane[i]));
    sum.lane[i] = flush(__builtin_fmaf(widen(weights[2 * i]), first, once));
  }
  return sum;
}
inline Vector load(const float* from) {
  Vector v;
  std::copy(from, from + 16, v.lane);
  return v;
}
inline void store(const Vector& v, float* to) { std::copy(v.lane, v.lane + 16, to); }

#include "core/backend/cpu/bf16_avx512-inl.h"
#include "core/backend/cpu/bf16_attention-inl.h"

}  // namespace emulation
}  // namespace

void avx512_slice_emulated(const Bf16Slice& slice) { emulation::dot_slice(slice); }
void avx512_scores_emulated(const BlockOfScores& scores) { emulation::scores(scores); }
void avx512_values_emulated(const BlockOfValues& values) { emulation::values(values); }
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

}  // namespace speclab::cpu
