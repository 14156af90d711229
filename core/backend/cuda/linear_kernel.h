#pragma once

#include "core/backend/cuda/fragments.h"

// Linear layers for 1 to 128 rows, bound by reading the weights once.
//
// Weights are the M operand of mma.m16n8k16 and rows the N operand: eight rows cost the same as one, and no lane of the
// matrix unit's large side is idle. The weights of a tile go from memory straight into registers, 16 bytes per lane and
// load, several loads ahead; activations come from L1 and L2.
//
// The order of a sum depends on the shape of the weights alone, so the bits of a row do not depend on how many others
// there are: k is cut into slices_of(out, in) slices; in a slice, steps of 16 are added in ascending k by the matrix unit; the
// slices' sums are added in order. Slices are the warps of one block and their sums meet in shared memory, on every
// architecture: a layer that needs many warps to keep memory busy has them, and neither a cluster (sm_90) nor partial sums
// in global memory, a second launch or a wait are needed. No atomics. Tiles per warp, warps per block and loads ahead may
// be tuned: they do not enter the bits.

namespace speclab::cuda {

/// y = W x + bias, or y += W x + bias.
struct Linear {
  const simt::u16* weights = nullptr;      ///< [out, in] as in fragments.h, 16-byte aligned
  int out = 0, in = 0;
  const simt::u16* activations = nullptr;  ///< [rows, in] as in fragments.h, 16-byte aligned
  int rows = 0;                            ///< 1 to kMostRows
  const float* bias = nullptr;             ///< [out]; null: none
  float* y = nullptr;                      ///< output m of row i at y[i * y_stride + m]
  int y_stride = 0;
  bool accumulate = false;
};
inline constexpr int kMostRows = 128;

/// Slices that the sum over k is cut into: enough for about 2,000 warps on the matrix, unless they would get less than 64
/// inputs each. 1, 2, 4 or 8. Part of the numerics class.
SPECLAB_BOTH constexpr int slices_of(int out, int in) {
  int slices = 1;
  while (slices < 8 && tiles_of(out, kTileOut) * slices < 2048 && tiles_of(in, kTileIn) >= 4 * slices) slices *= 2;
  return slices;
}
/// First block of kTileIn inputs of a slice; slice `slices` begins where the last one ends.
SPECLAB_BOTH constexpr int slice_begin(int in, int slices, int slice) {
  return tiles_of(in, kTileIn) * slice / slices;
}

inline namespace SPECLAB_SIDE {

/// kRowTiles: row tiles of a block, kOutTiles: tiles of outputs of a warp, kAhead: blocks of inputs whose weights are under way.
template <int kRowTiles, int kOutTiles, int kAhead>
struct LinearKernel {
  static constexpr const char* kName = "linear";
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / simt::kWarp;
  static constexpr int kTogether = kRowTiles < 4 ? kRowTiles : 4;  ///< row tiles whose slices meet at a time
  static constexpr int kSumFloats = kTogether * 128;               ///< of a warp
  static constexpr int kSharedBytes = kWarps * kSumFloats * 4;
  /// Few activations are fetched ahead as the weights are; many would take the registers.
  static constexpr int kRowsAhead = kRowTiles <= 2 ? kAhead : 1;
  Linear a;

  static constexpr int blocks(int out, int in) {
    return tiles_of(tiles_of(out, kTileOut), kWarps / slices_of(out, in) * kOutTiles);
  }

  SPECLAB_DEVICE void operator()() const {
    const int slices = slices_of(a.out, a.in), slice = simt::warp_index() % slices, group = simt::warp_index() / slices;
    const int out_tiles = tiles_of(a.out, kTileOut), in_tiles = tiles_of(a.in, kTileIn);
    const int first = (simt::block_x() * (kWarps / slices) + group) * kOutTiles;
    const int begin = slice_begin(a.in, slices, slice), end = slice_begin(a.in, slices, slice + 1);

    const simt::u16* weights[kOutTiles];  // of the lane
    SPECLAB_UNROLL
    for (int m = 0; m < kOutTiles; ++m) {
      const int tile = simt::min(first + m, out_tiles - 1);  // a warp beyond the end reads the last and stores nothing
      weights[m] = a.weights + static_cast<std::size_t>(tile) * static_cast<std::size_t>(in_tiles) * (kTileOut * kTileIn) + simt::lane() * kPiece;
    }
    const simt::u16* activations = a.activations + simt::lane() * kPiece;

    simt::Accumulator sums[kOutTiles][kRowTiles];
    SPECLAB_UNROLL
    for (int m = 0; m < kOutTiles; ++m) {
      SPECLAB_UNROLL
      for (int n = 0; n < kRowTiles; ++n) sums[m][n].clear();
    }

    simt::Bytes16 w[kAhead][kOutTiles][2], x[kRowsAhead][kRowTiles];
    const auto fetch_weights = [&](int k, int at) {
      SPECLAB_UNROLL
      for (int m = 0; m < kOutTiles; ++m) {
        const simt::u16* from = weights[m] + static_cast<std::size_t>(k) * (kTileOut * kTileIn);
        w[at][m][0] = simt::load16_streamed(from);
        w[at][m][1] = simt::load16_streamed(from + kTileOut * kTileIn / 2);
      }
    };
    const auto fetch_rows = [&](int k, int at) {
      SPECLAB_UNROLL
      for (int n = 0; n < kRowTiles; ++n) {
        x[at][n] = simt::load16_constant(activations + (static_cast<std::size_t>(k) * kRowTiles + static_cast<std::size_t>(n)) * (kTileRows * kTileIn));
      }
    };
    SPECLAB_UNROLL
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      if (begin + ahead < end) fetch_weights(begin + ahead, ahead);
    }
    if constexpr (kRowsAhead > 1) {
      SPECLAB_UNROLL
      for (int ahead = 0; ahead < kRowsAhead; ++ahead) {
        if (begin + ahead < end) fetch_rows(begin + ahead, ahead);
      }
    }
    for (int k = begin; k < end; k += kAhead) {
      SPECLAB_UNROLL
      for (int at = 0; at < kAhead; ++at) {
        if (k + at >= end) break;
        const int row = kRowsAhead > 1 ? at : 0;
        if constexpr (kRowsAhead == 1) fetch_rows(k + at, 0);
        SPECLAB_UNROLL
        for (int step = 0; step < 2; ++step) {
          SPECLAB_UNROLL
          for (int m = 0; m < kOutTiles; ++m) {
            SPECLAB_UNROLL
            for (int n = 0; n < kRowTiles; ++n) {
              const simt::u32 pair[2] = {x[row][n].word[2 * step], x[row][n].word[2 * step + 1]};
              simt::mma(sums[m][n], w[at][m][step].word, pair);
            }
          }
        }
        if (k + at + kAhead < end) {
          fetch_weights(k + at + kAhead, at);
          if constexpr (kRowsAhead > 1) fetch_rows(k + at + kAhead, at);
        }
      }
    }
    simt::mma_wait();

    const auto shared = simt::shared<float>(0, slices > 1 ? kWarps * kSumFloats : 0);
    SPECLAB_UNROLL
    for (int m = 0; m < kOutTiles; ++m) {
      if (slices == 1) {
        SPECLAB_UNROLL
        for (int n = 0; n < kRowTiles; ++n) {
          SPECLAB_UNROLL
          for (int i = 0; i < 4; ++i) finish(first + m, n, i, simt::lane(), sums[m][n][i]);
        }
        continue;
      }
      SPECLAB_UNROLL
      for (int from = 0; from < kRowTiles; from += kTogether) {
        if (m + from > 0) simt::block_sync();  // the sums before have been read
        SPECLAB_UNROLL
        for (int n = 0; n < kTogether; ++n) {
          if (from + n < kRowTiles) {
            SPECLAB_UNROLL
            for (int i = 0; i < 4; ++i) shared.set(simt::warp_index() * kSumFloats + (n * 4 + i) * 32 + simt::lane(), sums[m][from + n < kRowTiles ? from + n : 0][i]);
          }
        }
        simt::block_sync();
        for (int at = slice * 32 + simt::lane(); at < kSumFloats; at += slices * 32) {
          const int n = from + at / 128;
          if (n >= kRowTiles) break;
          float sum = shared[group * slices * kSumFloats + at];
          for (int other = 1; other < slices; ++other) sum += shared[(group * slices + other) * kSumFloats + at];
          finish(first + m, n, at / 32 % 4, at % 32, sum);
        }
      }
    }
  }

  /// Element i of a lane's part of a tile.
  SPECLAB_DEVICE void finish(int out_tile, int row_tile, int i, int lane, float sum) const {
    const int m = out_tile * kTileOut + lane / 4 + i / 2 * 8, row = row_tile * kTileRows + lane % 4 * 2 + i % 2;
    if (m >= a.out || row >= a.rows) return;
    if (a.bias != nullptr) sum += simt::load_constant(a.bias + m);
    float* to = a.y + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.y_stride) + m;
    simt::store(to, a.accumulate ? simt::load(to) + sum : sum);
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const Linear& a, const Visit& visit) {
  const auto with = [&](const auto& kernel) {
    const int slices = slices_of(a.out, a.in);
    visit(kernel, LaunchShape{.grid_x = kernel.blocks(a.out, a.in), .threads = kernel.kThreads, .shared_bytes = slices > 1 ? kernel.kSharedBytes : 0});
  };
  switch (row_tiles(a.rows)) {
    case 1: return with(LinearKernel<1, 1, 4>{a});
    case 2: return with(LinearKernel<2, 1, 4>{a});
    case 3: return with(LinearKernel<3, 1, 4>{a});
    case 4: return with(LinearKernel<4, 1, 3>{a});
    case 6: return with(LinearKernel<6, 1, 4>{a});
    case 8: return with(LinearKernel<8, 1, 4>{a});
    case 12: return with(LinearKernel<12, 2, 2>{a});
    case 16: return with(LinearKernel<16, 2, 2>{a});
    default: fail_arguments("linear", "rows are 1 to 128");
  }
}

}  // namespace speclab::cuda
