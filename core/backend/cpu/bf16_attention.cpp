#include <algorithm>
#include <cstring>

#include "core/backend/cpu/attention.h"
#include "core/backend/cpu/bf16_slices.h"
#include "core/backend/cpu/row_operations.h"

namespace speclab::cpu {

void attend_bf16(bool emulated, const HeadCache<Bf16>& cache, const QueryBlock& block, float* scratch) {
  const int rows = block.rows, head_dim = cache.head_dim;
  const int stride = score_stride(block.last_slot), width = padded(head_dim, 16);
  float* const scores = scratch;                                       // [rows][stride]
  float* const sums = scores + rows * stride;                          // [rows][width]
  Bf16* const weights = reinterpret_cast<Bf16*>(sums + rows * width);  // [rows][stride]
  Bf16* const q = weights + rows * stride;                             // [head_dim/2][rows][2]

  Bf16* const row = reinterpret_cast<Bf16*>(sums);  // the memory of the sums, which is not used yet
  for (int r = 0; r < rows; ++r) {
    round_row(block.q[r], head_dim, row);
    for (int d = 0; d < head_dim; d += 2) std::memcpy(q + d * rows + 2 * r, row + d, 2 * sizeof(Bf16));
  }
  SlotRange all;
  for (const SlotRange& range : block.scored(all)) {
    const BlockOfScores scored{
        cache.keys + static_cast<std::size_t>(range.begin) * static_cast<std::size_t>(head_dim),
        head_dim,
        rows,
        (range.end - range.begin) / kKeyBlock,
        q,
        scores + range.begin,
        stride};
    (emulated ? avx512_scores_emulated : avx512_scores)(scored);
  }

  float inverse[QueryBlock::kRows];
  int in_place = block.count(0);
  for (int r = 0; r < rows; ++r) {
    inverse[r] = 1.0f / attention_weights(block, r, scores + r * stride);
    round_row(scores + r * stride + block.begin, padded(block.count(r), kKeyBlock) - block.begin,
              weights + r * stride + block.begin);
    in_place = std::min(in_place, block.in_place(r));
  }
  std::fill_n(sums, rows * width, 0.0f);
  const BlockOfValues values{cache.values, head_dim, &block, std::max(in_place / 2 * 2, block.begin),
                             weights,      stride,   sums,   width};
  (emulated ? avx512_values_emulated : avx512_values)(values);
  for (int r = 0; r < rows; ++r) {
    for (int d = 0; d < head_dim; ++d) block.out[r][d] = sums[r * width + d] * inverse[r];
  }
}

}  // namespace speclab::cpu
