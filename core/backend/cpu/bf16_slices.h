#pragma once

#include <algorithm>

#include "core/backend/cpu/attention.h"
#include "core/backend/cpu/bf16_units.h"

// The kernels behind bf16_linear_slice() (bf16_units.h) exist for AVX-512 and for AMX. The kernels behind
// attend_bf16() (attention.h) exist for AVX-512 only. Each kernel also has an emulation in ordinary C++.
// Include this header only in the files that implement or choose these kernels.

namespace speclab::cpu {

void avx512_slice(const Bf16Slice& slice);           ///< needs supported(Bf16Unit::kAvx512)
void avx512_slice_emulated(const Bf16Slice& slice);  ///< needs AVX2 and FMA, like numerics class f32
void amx_slice(const Bf16Slice& slice);              ///< needs supported(Bf16Unit::kAmx)
void amx_slice_emulated(const Bf16Slice& slice);

double avx512_rounds(std::int64_t rounds);  ///< bf16_unit_rounds() of the AVX-512 unit
double amx_rounds(std::int64_t rounds);

/// The arguments of avx512_scores(), which computes scores[row][slot] for `blocks` blocks of keys. Rows of
/// scores are `stride` apart. q: the queries rounded to bf16, [head_dim/2][rows][2].
struct BlockOfScores {
  const Bf16* keys;
  int head_dim, rows, blocks;
  const Bf16* q;
  float* scores;
  int stride;
};
/// The arguments of avx512_values(), which computes sums[row][head dimension] += weight * value over all
/// positions of a row. Rows of sums are `width` apart. weights: the exponentials of the softmax,
/// [row][position], rows `stride` apart, zero after the last position. In all rows, position i is in slot i
/// for all i from block->begin to in_place - 1. `in_place` is even.
struct BlockOfValues {
  const Bf16* values;
  int head_dim;
  const QueryBlock* block;
  int in_place;
  const Bf16* weights;
  int stride;
  float* sums;
  int width;
};
void avx512_scores(const BlockOfScores& scores);
void avx512_values(const BlockOfValues& values);
void avx512_scores_emulated(const BlockOfScores& scores);
void avx512_values_emulated(const BlockOfValues& values);

/// Writes `width` outputs of one row, which are in `sums`, to y, or adds them to y if `accumulate` is true.
inline void put_sums(const float* sums, int width, float* y, bool accumulate) {
  if (accumulate) {
    for (int i = 0; i < width; ++i) y[i] += sums[i];
  } else {
    std::copy(sums, sums + width, y);
  }
}

}  // namespace speclab::cpu
