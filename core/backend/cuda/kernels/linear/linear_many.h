#pragma once

#include "core/backend/cuda/kernels/linear/linear.h"

// Linear layers for many rows. They read the weights once and the activations as rarely as shared memory
// allows.
//
// A warp has two tiles of outputs and all rows, so each piece of activations from shared memory serves two
// tiles of weights. The weights go from memory straight into registers. The activations of kAhead steps (a
// stage) are copied for all warps while the warps work on an earlier stage.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// kRowTiles: row tiles. kAhead: blocks of inputs whose weights are in flight, and blocks per stage.
template <int kRowTiles, int kAhead, typename Arguments = Linear>
struct LinearManyKernel {
  static constexpr const char* kName = "linear_many";
  static constexpr int kThreads = kLinearWarps * simt::kWarp;
  static constexpr bool kWaits = true;
  static constexpr int kStages = 3;
  static constexpr int kStagePieces = kAhead * kRowTiles * simt::kWarp;
  static constexpr int kSharedBytes = kStages * kStagePieces * 16;
  static constexpr int kTiles = kManyOutTiles * kRowTiles;  ///< accumulators per warp
  Arguments a;

  SPECLAB_DEVICE void operator()() const {
    const int slices = slices_of(a), slice = simt::block_y();
    const int out_tiles = tiles_of(a.out, kTileOut), in_tiles = tiles_of(a.in, kTileIn);
    const int warp_tile = simt::block_x() * (simt::block_threads() / simt::kWarp) + simt::warp_index(),
              warp_tiles = tiles_of(out_tiles, kManyOutTiles);
    const int begin = slice_begin(a.in, slices, slice), end = slice_begin(a.in, slices, slice + 1);

    // Two neighbouring tiles, or a gate and the part that it gates.
    const auto out_tile = [&](int m) {
      return a.activated == nullptr ? warp_tile * kManyOutTiles + m : warp_tile + m * warp_tiles;
    };
    const simt::u16* weights[kManyOutTiles];  // this lane's pieces
    SPECLAB_UNROLL
    for (int m = 0; m < kManyOutTiles; ++m) {
      const int tile = simt::min(
          out_tile(m), out_tiles - 1);  // a warp past the end reads the last tile and stores nothing
      weights[m] =
          a.weights +
          static_cast<std::size_t>(tile) * static_cast<std::size_t>(in_tiles) * (kTileOut * kTileIn) +
          simt::lane() * kPiece;
    }
    simt::Bytes16 w[kAhead][kManyOutTiles][2];
    const auto fetch = [&](int k, int at) {
      SPECLAB_UNROLL
      for (int m = 0; m < kManyOutTiles; ++m) {
        const simt::u16* from = weights[m] + static_cast<std::size_t>(k) * (kTileOut * kTileIn);
        w[at][m][0] = simt::load16_streamed(from);
        w[at][m][1] = simt::load16_streamed(from + kTileOut * kTileIn / 2);
      }
    };
    SPECLAB_UNROLL
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      if (begin + ahead < end) fetch(begin + ahead, ahead);
    }
    simt::wait_for_previous();  // the first weights are on their way; everything else comes after the wait
    simt::launch_next();

    // The activations of a slice are contiguous.
    const auto staged = simt::shared<simt::u16>(0, kStages * kStagePieces * kPiece);
    const simt::u16* activations =
        a.activations + static_cast<std::size_t>(begin) * (kRowTiles * kTileRows * kTileIn);
    const int pieces = (end - begin) * kRowTiles * simt::kWarp;
    const auto copy = [&](int stage, int to) {
      const int from = stage * kStagePieces, count = simt::min(kStagePieces, pieces - from);
      for (int i = simt::thread_index(); i < count; i += simt::block_threads()) {
        simt::async_copy16(staged, (to * kStagePieces + i) * kPiece,
                           activations + static_cast<std::size_t>(from + i) * kPiece);
      }
      simt::async_commit();  // at the end an empty group, so that the count of groups stays right
    };
    SPECLAB_UNROLL
    for (int stage = 0; stage < kStages - 1; ++stage) copy(stage, stage);

    simt::Accumulator sums[kManyOutTiles][kRowTiles];
    SPECLAB_UNROLL
    for (int m = 0; m < kManyOutTiles; ++m) {
      SPECLAB_UNROLL
      for (int n = 0; n < kRowTiles; ++n) sums[m][n].clear();
    }
    for (int k = begin, stage = 0, now = 0; k < end;
         k += kAhead, ++stage, now = now + 1 < kStages ? now + 1 : 0) {
      simt::async_wait<kStages - 2>();
      simt::block_sync();  // this stage has arrived, and all warps have read the previous one
      copy(stage + kStages - 1, now > 0 ? now - 1 : kStages - 1);
      SPECLAB_UNROLL
      for (int at = 0; at < kAhead; ++at) {
        if (k + at >= end) break;
        SPECLAB_UNROLL
        for (int n = 0; n < kRowTiles; ++n) {
          const simt::Bytes16 x =
              staged.get16((now * kStagePieces + (at * kRowTiles + n) * simt::kWarp + simt::lane()) * kPiece);
          SPECLAB_UNROLL
          for (int step = 0; step < 2; ++step) {
            const simt::u32 pair[2] = {x.word[2 * step], x.word[2 * step + 1]};
            SPECLAB_UNROLL
            for (int m = 0; m < kManyOutTiles; ++m) simt::mma(sums[m][n], w[at][m][step].word, pair);
          }
        }
        if (k + at + kAhead < end) fetch(k + at + kAhead, at);
      }
    }
    simt::mma_wait();
    simt::async_wait<0>();
    if (warp_tile >= warp_tiles) return;

    const auto finish = [&](int n, int i, float low, float high) {
      if (a.activated != nullptr) return finish_gated(a, warp_tile, n, i, simt::lane(), low, high);
      finish_linear(a, out_tile(0), n, i, simt::lane(), low);
      finish_linear(a, out_tile(1), n, i, simt::lane(), high);
    };
    if (slices == 1 || meet_in_y(a)) {
      SPECLAB_UNROLL
      for (int n = 0; n < kRowTiles; ++n) {
        SPECLAB_UNROLL
        for (int i = 0; i < 4; ++i) finish(n, i, sums[0][n][i], sums[1][n][i]);
      }
      return;
    }
    // [slices][warp tiles][kTiles][lanes][4]: one lane has 16 bytes of a tile.
    const auto floats_of = [](int tiles) { return static_cast<std::size_t>(tiles) * (kTileOut * kTileRows); };
    const std::size_t of_slice = floats_of(warp_tiles * kTiles);
    float* meeting = a.partials + floats_of(warp_tile * kTiles) + simt::lane() * 4;
    SPECLAB_UNROLL
    for (int m = 0; m < kManyOutTiles; ++m) {
      SPECLAB_UNROLL
      for (int n = 0; n < kRowTiles; ++n) {
        simt::store16(meeting + slice * of_slice + floats_of(m * kRowTiles + n),
                      {{simt::bits_of(sums[m][n][0]), simt::bits_of(sums[m][n][1]),
                        simt::bits_of(sums[m][n][2]), simt::bits_of(sums[m][n][3])}});
      }
    }
    simt::fence();
    simt::warp_sync();
    simt::u32 arrived = 0;
    if (simt::lane() == 0) arrived = simt::atomic_add(a.arrivals + warp_tile, 1);
    if (simt::shuffle(arrived, 0) + 1 < static_cast<simt::u32>(slices)) return;
    simt::fence();
    if (simt::lane() == 0) simt::store(a.arrivals + warp_tile, 0u);
    constexpr int kMostSlices = 8, kTogether = kRowTiles % 2 == 0 ? 2 : 1;
    for (int n = 0; n < kRowTiles; n += kTogether) {
      simt::Bytes16 part[kMostSlices][kTogether][kManyOutTiles];  // all loads are in flight at once
      SPECLAB_UNROLL
      for (int from = 0; from < kMostSlices; ++from) {
        SPECLAB_UNROLL
        for (int t = 0; t < kTogether; ++t) {
          SPECLAB_UNROLL
          for (int m = 0; m < kManyOutTiles; ++m) {
            if (from < slices)
              part[from][t][m] = simt::load16(meeting + from * of_slice + floats_of(m * kRowTiles + n + t));
          }
        }
      }
      SPECLAB_UNROLL
      for (int t = 0; t < kTogether; ++t) {
        SPECLAB_UNROLL
        for (int i = 0; i < 4; ++i) {
          float sum[kManyOutTiles];
          SPECLAB_UNROLL
          for (int m = 0; m < kManyOutTiles; ++m) {
            sum[m] = simt::float_of(part[0][t][m].word[i]);
            SPECLAB_UNROLL
            for (int from = 1; from < kMostSlices; ++from) {
              if (from < slices) sum[m] += simt::float_of(part[from][t][m].word[i]);
            }
          }
          finish(n + t, i, sum[0], sum[1]);
        }
      }
    }
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
