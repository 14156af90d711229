#pragma once

#include "core/backend/cuda/kernels/linear/linear.h"
#include "core/backend/cuda/kernels/linear/weight_ring.h"

// Linear layers for many rows. They read the weights once and the activations as rarely as shared memory
// allows.
//
// A warp has two tiles of outputs and all rows, so each piece of activations from shared memory serves two
// tiles of weights. The weights of a warp stream through its own ring in shared memory (weight_ring.h),
// kManyAhead blocks of inputs ahead. The activations of kSteps blocks of inputs (a stage) are copied for all
// warps while the warps work on an earlier stage. A barrier of the block precedes each stage. Copies of
// weights stay in flight across the barrier. Before a warp uses block of inputs j of its slice, it waits for
// group j of its asynchronous copies (weight_ring.h). The copies of the activations of a stage are in the
// group of the stage's first block of inputs or in an older one. So the wait for the weights of this block is
// also the wait for the activations of the stage.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// kRowTiles: row_tiles(rows).
template <int kRowTiles, typename Arguments = Linear>
struct LinearManyKernel {
  static constexpr const char* kName = "linear_many";
  static constexpr int kThreads = kLinearWarps * simt::kWarp;
  static constexpr bool kWaits = true;
  using Ring = WeightRing<kManyAhead, 2 * kManyOutTiles>;
  static constexpr int kSteps = kRowTiles <= 4 ? 4 : 2;   ///< blocks of inputs per stage
  static constexpr int kStages = kRowTiles <= 4 ? 3 : 4;  ///< in shared memory
  // The copies of a stage start when kStages - 1 stages before it have not been read yet. They are in the
  // same group as the weights that are kManyAhead blocks of inputs ahead. They must arrive no later than the
  // weights of their own stage.
  static_assert((kStages - 1) * kSteps >= kManyAhead && kManyAhead > (kStages - 2) * kSteps);
  static constexpr int kStagePieces = kSteps * kRowTiles * simt::kWarp;
  static constexpr int kStagesBytes = kStages * kStagePieces * 16;
  static constexpr int shared_bytes(int warps) { return kStagesBytes + warps * Ring::kBytes; }
  /// Halves the warps of a block until the block needs at most `most` bytes of shared memory or has one warp.
  /// The number of warps changes no bit of the result.
  static LaunchShape within(LaunchShape shape, int most) {
    while (shape.shared_bytes > most && shape.threads > simt::kWarp) {
      shape.threads /= 2;
      shape.grid_x *= 2;
      shape.shared_bytes = shared_bytes(shape.threads / simt::kWarp);
    }
    return shape;
  }
  static constexpr int kTiles = kManyOutTiles * kRowTiles;  ///< accumulators per warp
  Arguments a;

  SPECLAB_DEVICE void operator()() const {
    const int slices = slices_of(a), slice = simt::block_y();
    const int out_tiles = tiles_of(a.out, kTileOut), in_tiles = tiles_of(a.in, kTileIn);
    const int warp_tile = simt::block_x() * (simt::block_threads() / simt::kWarp) + simt::warp_index(),
              warp_tiles = tiles_of(out_tiles, kManyOutTiles);
    const int begin = slice_begin(a.in, slices, slice), end = slice_begin(a.in, slices, slice + 1);

    // A warp has two neighbouring tiles, or a tile of a gate and the tile that it gates.
    const auto out_tile = [&](int m) {
      return a.activated == nullptr ? warp_tile * kManyOutTiles + m : warp_tile + m * warp_tiles;
    };
    const simt::u16* weights[kManyOutTiles];  // this lane's next pieces
    SPECLAB_UNROLL
    for (int m = 0; m < kManyOutTiles; ++m) {
      const int tile = simt::min(
          out_tile(m), out_tiles - 1);  // a warp past the end reads the last tile and stores nothing
      weights[m] = a.weights +
                   (static_cast<std::size_t>(tile) * static_cast<std::size_t>(in_tiles) +
                    static_cast<std::size_t>(begin)) *
                       (kTileOut * kTileIn) +
                   simt::lane() * kPiece;
    }
    const Ring ring(kStagesBytes);
    const auto copy = [&](int k, int slot) {
      if (k >= end) return;
      SPECLAB_UNROLL
      for (int m = 0; m < kManyOutTiles; ++m) {
        ring.copy(slot, 2 * m, weights[m]);
        ring.copy(slot, 2 * m + 1, weights[m] + kTileOut * kTileIn / 2);
        weights[m] += kTileOut * kTileIn;
      }
    };
    SPECLAB_UNROLL
    for (int ahead = 0; ahead < kManyAhead; ++ahead) {
      copy(begin + ahead, ahead);
      if (ahead < kSteps) simt::async_commit();
    }
    simt::wait_for_previous();  // the first weights are on their way; everything else comes after the wait
    simt::launch_next();

    // The activations of a slice are contiguous.
    const auto staged = simt::shared<simt::u16>(0, kStages * kStagePieces * kPiece);
    const simt::u16* activations =
        a.activations + static_cast<std::size_t>(begin) * (kRowTiles * kTileRows * kTileIn);
    const int pieces = (end - begin) * kRowTiles * simt::kWarp;
    const auto copy_stage = [&](int stage, int to) {
      const int from = stage * kStagePieces, count = simt::min(kStagePieces, pieces - from);
      for (int i = simt::thread_index(); i < count; i += simt::block_threads()) {
        simt::async_copy16(staged, (to * kStagePieces + i) * kPiece,
                           activations + static_cast<std::size_t>(from + i) * kPiece);
      }
    };
    // The first stage comes through registers. As a group of copies it would arrive only after all weights
    // above, because groups complete in order. Every other stage is copied in a group that arrives before
    // the stage is needed.
    load_stage(staged, activations, simt::min(kStagePieces, pieces));
    SPECLAB_UNROLL
    for (int ahead = kSteps; ahead < kManyAhead; ++ahead) {
      if (ahead % kSteps == 0) copy_stage(ahead / kSteps, ahead / kSteps);
      simt::async_commit();
    }

    simt::Accumulator sums[kManyOutTiles][kRowTiles];
    SPECLAB_UNROLL
    for (int m = 0; m < kManyOutTiles; ++m) {
      SPECLAB_UNROLL
      for (int n = 0; n < kRowTiles; ++n) sums[m][n].clear();
    }
    for (int k = begin, stage = 0, now = 0, slot = 0; k < end;
         k += kSteps, ++stage, now = now + 1 < kStages ? now + 1 : 0) {
      SPECLAB_UNROLL
      for (int at = 0; at < kSteps; ++at) {
        if (at > 0 && k + at >= end) break;
        Ring::wait();
        if (at == 0) {
          simt::block_sync();  // this stage has arrived, and all warps have read the previous one
          copy_stage(stage + kStages - 1, now > 0 ? now - 1 : kStages - 1);
        }
        simt::Bytes16 w[kManyOutTiles][2];
        SPECLAB_UNROLL
        for (int m = 0; m < kManyOutTiles; ++m) {
          SPECLAB_UNROLL
          for (int step = 0; step < 2; ++step) w[m][step] = ring.read(slot, 2 * m + step);
        }
        copy(k + at + kManyAhead, slot);
        simt::async_commit();  // at the end the group of copies is empty; wait() counts these groups
        slot = Ring::after(slot);
        SPECLAB_UNROLL
        for (int n = 0; n < kRowTiles; ++n) {
          const simt::Bytes16 x =
              staged.get16((now * kStagePieces + (at * kRowTiles + n) * simt::kWarp + simt::lane()) * kPiece);
          SPECLAB_UNROLL
          for (int step = 0; step < 2; ++step) {
            const simt::u32 pair[2] = {x.word[2 * step], x.word[2 * step + 1]};
            SPECLAB_UNROLL
            for (int m = 0; m < kManyOutTiles; ++m) simt::mma(sums[m][n], w[m][step].word, pair);
          }
        }
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
    // The layout of a.partials is [slices][warp tiles][kTiles][lanes][4]: one lane has 16 bytes of a tile.
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

 private:
  // Copies a stage to shared memory through registers. A thread has several loads in flight at once.
  SPECLAB_DEVICE static void load_stage(const simt::Shared<simt::u16>& staged, const simt::u16* activations,
                                        int count) {
    constexpr int kTogether = 4;
    for (int begin = simt::thread_index(); begin < count; begin += kTogether * simt::block_threads()) {
      simt::Bytes16 piece[kTogether];
      SPECLAB_UNROLL
      for (int j = 0; j < kTogether; ++j) {
        const int i = begin + j * simt::block_threads();
        if (i < count) piece[j] = simt::load16_constant(activations + static_cast<std::size_t>(i) * kPiece);
      }
      SPECLAB_UNROLL
      for (int j = 0; j < kTogether; ++j) {
        const int i = begin + j * simt::block_threads();
        if (i < count) staged.set16(i * kPiece, piece[j]);
      }
    }
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
