#pragma once

#include "core/backend/cuda/kernels/simt.h"

// Helpers for the kernels that work on rows: pieces of eight floats, and sums over a block in a fixed order.

namespace speclab::cuda {

inline constexpr int kRowThreads = 256;  ///< largest number of threads per block
/// Bytes of shared memory that one block_sum() needs.
inline constexpr int kSumBytes = kRowThreads / simt::kWarp * 4;

/// Returns the number of threads for a row of d elements: one per piece of eight, rounded up to whole warps,
/// at most kRowThreads. The number depends on d alone, and so does the order of every sum.
SPECLAB_BOTH int row_threads(int d) {
  const int threads = (d + 255) / 256 * 32;
  return threads < kRowThreads ? threads : kRowThreads;
}

inline namespace SPECLAB_SIDE {

/// Elements [begin, begin + 8) of a row of d elements; zeros past its end. `aligned`: the row starts at a
/// multiple of 16 bytes.
struct Piece {
  float v[8];

  SPECLAB_DEVICE static Piece read(const float* row, int begin, int d, bool aligned) {
    Piece piece;
    if (aligned && begin + 8 <= d) {
      const simt::Bytes16 low = simt::load16(row + begin), high = simt::load16(row + begin + 4);
      SPECLAB_UNROLL
      for (int i = 0; i < 4; ++i) {
        piece.v[i] = simt::float_of(low.word[i]);
        piece.v[i + 4] = simt::float_of(high.word[i]);
      }
    } else {
      SPECLAB_UNROLL
      for (int i = 0; i < 8; ++i) piece.v[i] = begin + i < d ? simt::load(row + begin + i) : 0.0f;
    }
    return piece;
  }
  SPECLAB_DEVICE void write(float* row, int begin, int d, bool aligned) const {
    if (aligned && begin + 8 <= d) {
      simt::store16(row + begin,
                    {{simt::bits_of(v[0]), simt::bits_of(v[1]), simt::bits_of(v[2]), simt::bits_of(v[3])}});
      simt::store16(row + begin + 4,
                    {{simt::bits_of(v[4]), simt::bits_of(v[5]), simt::bits_of(v[6]), simt::bits_of(v[7])}});
    } else {
      SPECLAB_UNROLL
      for (int i = 0; i < 8; ++i) {
        if (begin + i < d) simt::store(row + begin + i, v[i]);
      }
    }
  }
  /// The piece, rounded to bf16.
  SPECLAB_DEVICE simt::Bytes16 rounded() const {
    return {{simt::pack_bf16(v[0], v[1]), simt::pack_bf16(v[2], v[3]), simt::pack_bf16(v[4], v[5]),
             simt::pack_bf16(v[6], v[7])}};
  }
};

SPECLAB_BOTH bool on_16_bytes(const void* p, int stride) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0 && stride % 4 == 0;
}

/// Returns the sum over the threads of the block. The order is a tree within each warp, then the warps in
/// ascending order. Every thread gets the result. Two sums of one kernel need separate memory.
SPECLAB_DEVICE float block_sum(float value, int offset_bytes) {
  const int warps = simt::block_threads() / simt::kWarp;
  value = simt::warp_sum(value);
  if (warps == 1) return value;
  const auto sums = simt::shared<float>(offset_bytes, kSumBytes / 4);
  if (simt::lane() == 0) sums.set(simt::warp_index(), value);
  simt::block_sync();
  float total = sums[0];
  for (int warp = 1; warp < warps; ++warp) total += sums[warp];
  return total;
}

/// Like block_sum(), over the first `threads` threads of a larger block. The bits are those of block_sum() in
/// a block of `threads` threads. Every thread of the block gets the result.
SPECLAB_DEVICE float leading_sum(float value, int threads, int offset_bytes) {
  const auto sums = simt::shared<float>(offset_bytes, kSumBytes / 4);
  value = simt::warp_sum(value);
  if (simt::lane() == 0 && simt::thread_index() < threads) sums.set(simt::warp_index(), value);
  simt::block_sync();
  float total = sums[0];
  for (int warp = 1; warp < threads / simt::kWarp; ++warp) total += sums[warp];
  return total;
}

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
