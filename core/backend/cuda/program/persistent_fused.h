#pragma once

#include "core/backend/cuda/kernels/attention_kernel.h"
#include "core/backend/cuda/kernels/kv_kernel.h"
#include "core/backend/cuda/kernels/linear/linear_few.h"

// Pairs of operations that become one launch, or one task of a persistent kernel. For one row this saves two
// launches, or two barriers, per layer. For 2 to 16 rows it saves half of that, because only Rotated is used.
// In Rotated, a block of the second operation needs only results of the same block of the first. In Combined,
// every block of the second operation repeats the first. The fused kernels do the same arithmetic as both
// operations, so the bits are the same.

namespace speclab::cuda {

/// True if RopeStore can be fused with the product before it, which computes queries, keys and values. A
/// block computes each tile of outputs of the lower half of a head together with its counterpart in the upper
/// half, so a block must have at least two tiles. `slices` is the number of slices of the product, which
/// determines the number of tiles per block.
SPECLAB_BOTH constexpr bool can_rotate(const RopeStore& rope, int slices) {
  return rope.half > 0 && 2 * rope.half == rope.head_dim && rope.half % kTileOut == 0 &&
         slices <= kLinearWarps / 2;
}
/// Largest number of splits (attention_kernel.h) for which AttentionSum is fused with the product after it.
/// Every block of the product adds up the splits of the row by itself, so there must be few of them.
inline constexpr int kMostStagedSplits = 8;

inline namespace SPECLAB_SIDE {

/// Fuses a product with the RopeStore after it.
struct Rotated {
  static constexpr bool kStages = false, kPairs = true;
  RopeStore rope;

  /// Returns the tile of a pair that lies in the lower half of a head, or in the upper half if `upper` is 1.
  SPECLAB_DEVICE int tile_of(int pair, int upper) const {
    const int of_half = rope.half / kTileOut;
    return pair / of_half * (2 * of_half) + pair % of_half + upper * of_half;
  }
  /// Does what finish_linear() and then RopeStoreKernel do, for both halves.
  SPECLAB_DEVICE void finish(const Linear& a, int pair, int row_tile, int i, int lane, float low,
                             float high) const {
    const int m = tile_of(pair, 0) * kTileOut + lane / 4 + i / 2 * 8,
              row = row_tile * kTileRows + lane % 4 * 2 + i % 2;
    if (m >= a.out || row >= a.rows) return;
    const int vector = m / rope.head_dim, j = m % rope.head_dim;
    if (a.bias != nullptr) {
      low += simt::load_constant(a.bias + m);
      high += simt::load_constant(a.bias + m + rope.half);
    }
    const bool is_value = vector >= rope.heads + rope.kv_heads;
    if (!is_value) {
      const std::size_t turn =
          static_cast<std::size_t>(simt::load(rope.positions + row)) * static_cast<std::size_t>(rope.half) +
          j;
      const float c = simt::load_constant(rope.cos + turn), s = simt::load_constant(rope.sin + turn);
      const float x = low, y = high;
      low = x * c - y * s;
      high = y * c + x * s;
    }
    float* to = a.y + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.y_stride) + m;
    simt::store(to, low);
    simt::store(to + rope.half, high);
    if (vector < rope.heads) return;
    const int kv_head = (vector - rope.heads) % rope.kv_heads;
    simt::u16* kept =
        (is_value ? rope.kv.values(kv_head) : rope.kv.keys(kv_head)) +
        static_cast<std::size_t>(simt::load(rope.slots + row)) * static_cast<std::size_t>(rope.kv.stride) + j;
    simt::store(kept, simt::to_bf16(low));
    simt::store(kept + rope.half, simt::to_bf16(high));
  }
};

/// Fuses an AttentionSum with the product after it.
struct Combined {
  static constexpr bool kStages = true, kPairs = false;
  Attention of;

  /// Does what AttentionSumKernel does for one row, into shared memory.
  SPECLAB_DEVICE void stage(const simt::Shared<simt::u16>& row, int padded) const {
    const int width = of.heads * of.head_dim;
    SPECLAB_ROLLED
    for (int k = simt::thread_index(); k < padded; k += simt::block_threads()) {
      row.set(k, k < width ? simt::to_bf16(AttendedQuery(of, 0, k / of.head_dim)[k % of.head_dim])
                           : simt::u16{0});
    }
    simt::block_sync();
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
