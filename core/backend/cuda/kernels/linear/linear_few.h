#pragma once

#include "core/backend/cuda/kernels/linear/linear.h"
#include "core/backend/cuda/kernels/linear/weight_ring.h"

// Linear layers for few rows. Their time is the time to read the weights once.
//
// Weights are the M operand of mma.m16n8k16 and rows are the N operand, so eight rows cost the same as one
// and the large side of the matrix unit is always full. The weights of a warp stream through its own ring in
// shared memory (weight_ring.h), kFewAhead blocks of inputs ahead. Activations come from L1 and L2, one block
// of inputs ahead, into registers. These loads have a scoreboard of their own (a counter of loads in flight,
// weight_ring.h). So the stream of weights does not wait for the activations, and the activations do not wait
// for the weights.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// The type `Fused` of a linear layer that is fused with nothing. The other types are in persistent_fused.h.
/// With them, the kernel computes its input row first (kStages), or it processes pairs of outputs (kPairs).
struct Alone {
  static constexpr bool kStages = false, kPairs = false;
};

/// kRowTiles: row tiles per block. kNorm: the input is a row before its norm. Every block computes the norm
/// of the whole row and keeps the result in shared memory.
template <int kRowTiles, bool kNorm, typename Arguments = Linear, typename Fused = Alone>
struct LinearFewKernel {
  static constexpr const char* kName = "linear_few";
  static constexpr int kThreads = kLinearWarps * simt::kWarp;
  static constexpr bool kWaits = true;
  static constexpr int kResident = 2;  ///< blocks on a multiprocessor, so at most 128 registers per thread
  using Ring = WeightRing<kFewAhead, 2>;
  static constexpr int kSumFloats = kRowTiles * 128;    ///< per warp
  static constexpr int kRingFloats = Ring::kBytes / 4;  ///< per warp
  static constexpr int kRingsBytes = kLinearWarps * Ring::kBytes, kRowAt = kRingsBytes + 2 * kSumBytes;
  static_assert(kSumFloats <= kRingFloats);  // the sums of a warp replace its weights
  static constexpr bool kStaged = kNorm || Fused::kStages;
  static constexpr int shared_bytes(int in) {
    return kStaged ? kRowAt + tiles_of(in, kTileIn) * kTileIn * 2 : kRingsBytes;
  }
  Arguments a;
  Fused fused{};

  SPECLAB_DEVICE void operator()() const {
    const int slices = slices_of(a), slice = simt::warp_index() % slices, group = simt::warp_index() / slices;
    const int out_tiles = tiles_of(a.out, kTileOut), in_tiles = tiles_of(a.in, kTileIn);
    const int groups = kLinearWarps / slices;
    // A group is the warps that share a tile of outputs. If gated, the lower half of the groups computes the
    // gate and the upper half computes what it gates.
    const bool pairs = Fused::kPairs || a.activated != nullptr;
    const int lower = pairs ? simt::block_x() * (groups / 2) + group % (groups / 2) : 0;
    int out_tile = pairs ? lower + group / (groups / 2) * (out_tiles / 2) : simt::block_x() * groups + group;
    if constexpr (Fused::kPairs) out_tile = fused.tile_of(lower, group / (groups / 2));
    const int begin = slice_begin(a.in, slices, slice), end = slice_begin(a.in, slices, slice + 1);

    const int read =
        simt::min(out_tile, out_tiles - 1);  // a warp past the end reads the last tile and stores nothing
    const simt::u16* weights =               // this lane's next piece
        a.weights +
        (static_cast<std::size_t>(read) * static_cast<std::size_t>(in_tiles) +
         static_cast<std::size_t>(begin)) *
            (kTileOut * kTileIn) +
        simt::lane() * kPiece;
    const Ring ring(0);
    const auto copy = [&](int k, int slot) {
      if (k < end) {
        ring.copy(slot, 0, weights);
        ring.copy(slot, 1, weights + kTileOut * kTileIn / 2);
        weights += kTileOut * kTileIn;
      }
      simt::async_commit();  // past the end the group of copies is empty; wait() counts these groups
    };
    SPECLAB_UNROLL
    for (int ahead = 0; ahead < kFewAhead; ++ahead) copy(begin + ahead, ahead);
    simt::wait_for_previous();  // the first weights are on their way; everything else comes after the wait
    simt::launch_next();

    const auto row = simt::shared<simt::u16>(kStaged ? kRowAt : 0, kStaged ? in_tiles * kTileIn : 0);
    if constexpr (Fused::kStages) fused.stage(row, in_tiles * kTileIn);
    if constexpr (kNorm) {
      if (a.norm.kind == NormOf::kRms) stage_norm<NormOf::kRms>(row);
      else stage_norm<NormOf::kLayer>(row);
    }
    simt::Accumulator sums[kRowTiles];
    SPECLAB_UNROLL
    for (int n = 0; n < kRowTiles; ++n) sums[n].clear();
    simt::Bytes16 x[2][kRowTiles] = {};  // activations of this block of inputs and of the next one
    // The last row tile may have missing rows. Each row is a column of the products, and the sums in the
    // columns of missing rows are not used. The lanes of missing rows read the first row of the tile again,
    // which costs no traffic.
    const int last_row = a.rows - (kRowTiles - 1) * kTileRows - 1,
              last_lane = simt::lane() / 4 <= last_row ? simt::lane() : simt::lane() % 4;
    const simt::u16* activations =
        a.activations + static_cast<std::size_t>(begin) * (kRowTiles * kTileRows * kTileIn);
    const auto fetch = [&](int k, int to, simt::u32 offset) {
      SPECLAB_UNROLL
      for (int n = 0; n < kRowTiles; ++n) {
        const int lane = n < kRowTiles - 1 ? simt::lane() : last_lane;
        x[to][n] = simt::load16(activations + offset + n * (kTileRows * kTileIn) + lane * kPiece);
      }
      if (k + 1 < end) activations += kRowTiles * kTileRows * kTileIn;
    };
    if (!kStaged && begin < end) fetch(begin, 0, 0);
    int slot = 0;
    const auto multiply = [&](int k, int at) {
      // The fetch() before this call of multiply() started loads of activations. They must start before the
      // wait for the ring. Without this line, nvcc would move them behind that wait.
      if constexpr (!kStaged) simt::warp_sync();
      Ring::wait();
      const simt::Bytes16 w[2] = {ring.read(slot, 0), ring.read(slot, 1)};
      copy(k + kFewAhead, slot);
      slot = Ring::after(slot);
      if constexpr (kStaged) {
        x[at][0] = row.get16(k * kTileIn + simt::lane() % 4 * kPiece);
      } else {
        // The offset is always 0 (at most 128 rows), but nvcc does not know this. So the loads for the next
        // block of inputs start only when those of this block have arrived. If they started earlier, the
        // products below would wait for both, because both use one scoreboard. The last block of inputs is
        // loaded twice, because a branch around the load would make the products wait in the same way.
        fetch(k + 1, 1 - at, (x[at][0].word[0] ^ w[0].word[0]) & static_cast<simt::u32>(a.rows) >> 8);
      }
      SPECLAB_UNROLL
      for (int step = 0; step < 2; ++step) {
        SPECLAB_UNROLL
        for (int n = 0; n < kRowTiles; ++n) {
          const simt::u32 pair[2] = {x[at][n].word[2 * step], x[at][n].word[2 * step + 1]};
          simt::mma(sums[n], w[step].word, pair);
        }
      }
    };
    int k = begin;
    SPECLAB_ROLLED
    for (; k + 1 < end; k += 2) {
      multiply(k, 0);
      multiply(k + 1, 1);
    }
    if (k < end) multiply(k, 0);
    simt::mma_wait();

    if (slices == 1 && !pairs) {
      SPECLAB_UNROLL
      for (int n = 0; n < kRowTiles; ++n) {
        SPECLAB_UNROLL
        for (int i = 0; i < 4; ++i) finish_linear(a, out_tile, n, i, simt::lane(), sums[n][i]);
      }
      return;
    }
    simt::warp_sync();  // all lanes have read their weights; the sums take their place
    const auto shared = simt::shared<float>(0, kLinearWarps * kRingFloats);
    SPECLAB_UNROLL
    for (int n = 0; n < kRowTiles; ++n) {
      SPECLAB_UNROLL
      for (int i = 0; i < 4; ++i)
        shared.set(simt::warp_index() * kRingFloats + (n * 4 + i) * 32 + simt::lane(), sums[n][i]);
    }
    simt::block_sync();
    const auto sum_of = [&](int of, int at) {
      float sum = shared[of * slices * kRingFloats + at];
      for (int other = 1; other < slices; ++other) sum += shared[(of * slices + other) * kRingFloats + at];
      return sum;
    };
    if constexpr (!Fused::kPairs) {
      if (!pairs) {
        for (int at = slice * 32 + simt::lane(); at < kSumFloats; at += slices * 32) {
          finish_linear(a, out_tile, at / 128, at / 32 % 4, at % 32, sum_of(group, at));
        }
        return;
      }
    }
    SPECLAB_ROLLED
    for (int i = simt::thread_index(); i < groups / 2 * kSumFloats; i += kThreads) {
      const int gate = i / kSumFloats, at = i % kSumFloats, pair = simt::block_x() * (groups / 2) + gate;
      const float low = sum_of(gate, at), high = sum_of(groups / 2 + gate, at);
      if constexpr (Fused::kPairs) fused.finish(a, pair, at / 128, at / 32 % 4, at % 32, low, high);
      else finish_gated(a, pair, at / 128, at / 32 % 4, at % 32, low, high);
    }
  }

 private:
  // Computes the norm of the row into shared memory, with the bits of NormKernel.
  template <NormOf kKind>
  SPECLAB_DEVICE void stage_norm(const simt::Shared<simt::u16>& row) const {
    const int threads = row_threads(a.in);
    const Moments moments = moments_of<kKind>(a.norm.x, a.in, a.norm.eps, threads, [&](float value, int i) {
      return leading_sum(value, threads, kRingsBytes + i * kSumBytes);
    });
    for (int begin = 8 * simt::thread_index(); begin < tiles_of(a.in, kTileIn) * kTileIn;
         begin += 8 * kThreads) {
      row.set16(begin,
                normed_piece<kKind>(a.norm.x, a.norm.weight, a.norm.bias, begin, a.in, moments).rounded());
    }
    simt::block_sync();
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
