#pragma once

#include "core/backend/cuda/kernels/linear/linear.h"

// Linear layers for few rows. Their time is the time to read the weights once.
//
// Weights are the M operand of mma.m16n8k16 and rows are the N operand, so eight rows cost the same as one
// and the large side of the matrix unit is always full. The weights of a tile go from memory straight into
// registers, 16 bytes per lane and load, several loads ahead. Activations come from L1 and L2.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// The value of Fused for a linear layer that is fused with nothing. The other types for Fused are in
/// persistent_fused.h. They compute the row first, or process pairs of outputs.
struct Alone {
  static constexpr bool kStages = false, kPairs = false;
};

/// kRowTiles: row tiles per block. kAhead: blocks of inputs whose weights and activations are in flight.
/// kNorm: the input is a row before its norm, and every block holds all of it in shared memory.
template <int kRowTiles, int kAhead, bool kNorm, typename Arguments = Linear, typename Fused = Alone>
struct LinearFewKernel {
  static constexpr const char* kName = "linear_few";
  static constexpr int kThreads = kLinearWarps * simt::kWarp;
  static constexpr bool kWaits = true;
  static constexpr int kResident = 2;  ///< blocks on a multiprocessor, so at most 128 registers
  static constexpr int kSumFloats = kRowTiles * 128;  ///< per warp
  static constexpr int kSumsBytes = kLinearWarps * kSumFloats * 4, kRowAt = kSumsBytes + 2 * kSumBytes;
  static constexpr bool kStaged = kNorm || Fused::kStages;
  static constexpr int shared_bytes(int in) {
    return kStaged ? kRowAt + tiles_of(in, kTileIn) * kTileIn * 2 : kSumsBytes;
  }
  Arguments a;
  Fused fused{};

  SPECLAB_DEVICE void operator()() const {
    const int slices = slices_of(a), slice = simt::warp_index() % slices, group = simt::warp_index() / slices;
    const int out_tiles = tiles_of(a.out, kTileOut), in_tiles = tiles_of(a.in, kTileIn);
    const int groups = kLinearWarps / slices;
    // Gated: the lower half of the groups has the gate, the upper half the part that it gates.
    const bool pairs = Fused::kPairs || a.activated != nullptr;
    const int lower = pairs ? simt::block_x() * (groups / 2) + group % (groups / 2) : 0;
    int out_tile = pairs ? lower + group / (groups / 2) * (out_tiles / 2) : simt::block_x() * groups + group;
    if constexpr (Fused::kPairs) out_tile = fused.tile_of(lower, group / (groups / 2));
    const int begin = slice_begin(a.in, slices, slice), end = slice_begin(a.in, slices, slice + 1);

    const int read =
        simt::min(out_tile, out_tiles - 1);  // a warp past the end reads the last tile and stores nothing
    const simt::u16* weights =
        a.weights +
        static_cast<std::size_t>(read) * static_cast<std::size_t>(in_tiles) * (kTileOut * kTileIn) +
        simt::lane() * kPiece;
    const simt::u16* activations = a.activations + simt::lane() * kPiece;

    simt::Accumulator sums[kRowTiles];
    // Weights and activations in flight. A short slice never loads some of them. They get a value here so
    // that they do not occupy registers during the kernels that follow this one in a persistent kernel
    // (persistent.h).
    simt::Bytes16 w[kAhead][2] = {}, x[kAhead][kRowTiles] = {};
    SPECLAB_UNROLL
    for (int n = 0; n < kRowTiles; ++n) sums[n].clear();
    const auto fetch_weights = [&](int k, int at) {
      const simt::u16* from = weights + static_cast<std::size_t>(k) * (kTileOut * kTileIn);
      w[at][0] = simt::load16_streamed(from);
      w[at][1] = simt::load16_streamed(from + kTileOut * kTileIn / 2);
    };
    const auto fetch_rows = [&](int k, int at) {
      if constexpr (!kStaged) {
        SPECLAB_UNROLL
        for (int n = 0; n < kRowTiles; ++n) {
          x[at][n] = {};  // missing rows are not read: one row is an eighth of a tile
          if (n * kTileRows + simt::lane() / 4 < a.rows) {
            x[at][n] = simt::load16_constant(
                activations + (static_cast<std::size_t>(k) * kRowTiles + static_cast<std::size_t>(n)) *
                                  (kTileRows * kTileIn));
          }
        }
      }
    };
    SPECLAB_UNROLL
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      if (begin + ahead < end) fetch_weights(begin + ahead, ahead);
    }
    simt::wait_for_previous();  // the first weights are on their way; everything else comes after the wait
    simt::launch_next();
    SPECLAB_UNROLL
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      if (begin + ahead < end) fetch_rows(begin + ahead, ahead);
    }
    const auto row = simt::shared<simt::u16>(kStaged ? kRowAt : 0, kStaged ? in_tiles * kTileIn : 0);
    if constexpr (Fused::kStages) fused.stage(row, in_tiles * kTileIn);
    if constexpr (kNorm) {
      if (a.norm.kind == NormOf::kRms) stage_norm<NormOf::kRms>(row);
      else stage_norm<NormOf::kLayer>(row);
    }
    for (int k = begin; k < end; k += kAhead) {
      SPECLAB_UNROLL
      for (int at = 0; at < kAhead; ++at) {
        if (k + at >= end) break;
        if constexpr (kStaged) {
          x[at][0] = {};
          if (simt::lane() < 4) x[at][0] = row.get16((k + at) * kTileIn + simt::lane() * kPiece);
        }
        SPECLAB_UNROLL
        for (int step = 0; step < 2; ++step) {
          SPECLAB_UNROLL
          for (int n = 0; n < kRowTiles; ++n) {
            const simt::u32 pair[2] = {x[at][n].word[2 * step], x[at][n].word[2 * step + 1]};
            simt::mma(sums[n], w[at][step].word, pair);
          }
        }
        if (k + at + kAhead < end) {
          fetch_weights(k + at + kAhead, at);
          fetch_rows(k + at + kAhead, at);
        }
      }
    }
    simt::mma_wait();

    if (slices == 1 && !pairs) {
      SPECLAB_UNROLL
      for (int n = 0; n < kRowTiles; ++n) {
        SPECLAB_UNROLL
        for (int i = 0; i < 4; ++i) finish_linear(a, out_tile, n, i, simt::lane(), sums[n][i]);
      }
      return;
    }
    const auto shared = simt::shared<float>(0, kLinearWarps * kSumFloats);
    SPECLAB_UNROLL
    for (int n = 0; n < kRowTiles; ++n) {
      SPECLAB_UNROLL
      for (int i = 0; i < 4; ++i)
        shared.set(simt::warp_index() * kSumFloats + (n * 4 + i) * 32 + simt::lane(), sums[n][i]);
    }
    simt::block_sync();
    const auto sum_of = [&](int of, int at) {
      float sum = shared[of * slices * kSumFloats + at];
      for (int other = 1; other < slices; ++other) sum += shared[(of * slices + other) * kSumFloats + at];
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
      return leading_sum(value, threads, kSumsBytes + i * kSumBytes);
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
