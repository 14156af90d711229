#pragma once

#include "core/backend/backend.h"
#include "core/backend/cuda/kernels/activation.h"
#include "core/backend/cuda/kernels/linear/fragments.h"
#include "core/backend/cuda/kernels/norm_kernel.h"

// Linear layers for 1 to 128 rows: what is asked for, and how it is cut up. Two kernels have the same bits.
//
// The order of a sum depends on the shape of the weights alone, so the bits of a row do not depend on how
// many others there are: k is cut into slices_of(out, in) slices; in a slice, steps of 16 are added in
// ascending k by the matrix unit; the slices' sums are added in order. No atomics on floats. Everything else
// here may be tuned: it does not enter the bits.
//
// Few rows (linear_few.h): the slices of a tile of outputs are warps of one block, whose sums meet in shared
// memory: no second launch, no wait. Every warp reads the activations of its slice itself, n / (16 * groups)
// times the weights' bytes for the `groups` tiles of a block, so this is for n <= 16 and no more activations
// than L1 holds. Many rows (linear_many.h): a block has one slice and up to 256 outputs, and copies the
// activations of its slice to shared memory once for all its warps; slices are blocks, whose sums meet in
// global memory (L2). The last to arrive adds them, in order.
//
// What all products of a forward move (weights: 269 MB, 2.47 GB, 15.0 GB), as multiples of the weights'
// bytes, and the time as a multiple of that of reading the weights at the speed of memory. Calculated from
// the plans below, not measured (cuda_linear_plan_test.cpp calculates it again), for an H100 with 3.0 TB/s
// from memory, 5.5 TB/s from L2, 128 bytes a clock and SM from shared memory (28 TB/s) and 600 TFLOP/s by
// mma.sync, each product at the speed of the slowest of them; launches, ramps and the wait for the last slice
// come on top.
//                              SmolLM2-135M          Llama-3.2-1B            Llama-3.1-8B
//   n                       1    16    64   128      1    16    64   128      1    16    64   128
//   activations from L2   .03   .52  1.24  2.47    .03   .24   .45   .89    .02   .19   .36   .71
//   sums to and from L2     0     0  1.32  2.63      0   .01   .19   .38      0   .00   .06   .13
//   shared memory, read     0     0     2     4      0   .11     2     4      0   .13     2     4
//   time                 1.00  1.02  2.00  3.37   1.00  1.01  1.05  1.28   1.00  1.00  1.00  1.11
// Small models are bound by launches at n = 1 (0.09 ms of 0.3), so that their t(128)/t(1) is below the last
// row's.

namespace speclab::cuda {

inline constexpr int kMostRows = 128;

/// One row before its norm, which the kernel then takes itself.
struct NormedRow {
  const float* x = nullptr;  ///< [in]; null: activations are there
  NormOf kind = NormOf::kRms;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float eps = 0;
};

/// y = W x + bias, or y += W x + bias, or f(W_gate x + bias) * (W_up x + bias) as the input of the next
/// layer.
struct Linear {
  const simt::u16* weights = nullptr;  ///< [out, in] as in fragments.h, 16-byte aligned
  int out = 0, in = 0;
  const simt::u16* activations = nullptr;  ///< [rows, in] as in fragments.h, 16-byte aligned
  int rows = 0;                            ///< 1 to kMostRows
  NormedRow norm{};                        ///< instead of activations, where can_norm(rows, in)
  const float* bias = nullptr;             ///< [out]; null: none
  float* y = nullptr;                      ///< output m of row i at y[i * y_stride + m]
  int y_stride = 0;
  bool accumulate = false;
  // Not null: W is W_gate and then W_up, and instead of y this is written, [rows, out / 2] as in fragments.h;
  // only where can_activate(out, in).
  simt::u16* activated = nullptr;
  Activation function = Activation::kSilu;
  // For slices that meet in global memory (LinearPlan::partials, arrivals); launches that may overlap need
  // their own.
  float* partials = nullptr;      ///< 16-byte aligned
  simt::u32* arrivals = nullptr;  ///< zeros; zeros again afterwards
};

/// Slices that the sum over k is cut into: enough for about 1,000 warps on the matrix, unless they would get
/// less than 128 inputs each. 1, 2, 4 or 8. Part of the numerics class. By Little's law 3.0 to 4.3 TB/s at a
/// latency of 0.8 us are 2.4 to 3.5 MB under way; 1,000 warps of linear_few.h have 6 MB (six loads ahead of 1
/// KiB each), as many of linear_many.h have 3 to 4 MB in half as many warps.
SPECLAB_BOTH constexpr int slices_of(int out, int in) {
  int slices = 1;
  while (slices < 8 && tiles_of(out, kTileOut) * slices < 1024 && tiles_of(in, kTileIn) >= 8 * slices)
    slices *= 2;
  return slices;
}
SPECLAB_BOTH constexpr int slices_of(const Linear& a) { return slices_of(a.out, a.in); }
/// Whether slices are added to y as they come (linear_free_kernel.h, for benchmarks): here never.
SPECLAB_BOTH constexpr bool meet_in_y(const Linear&) { return false; }
/// Whether every block may norm the row itself, while the first weights are under way: one kernel less, at n
/// = 1, where a kernel costs more than a row.
SPECLAB_BOTH constexpr bool can_norm(int rows, int in) { return rows == 1 && in <= 16384; }
/// Whether a gate and what it gates can meet in a block: both are whole blocks of inputs of the next layer,
/// and a block of linear_few.h has more than one tile.
SPECLAB_BOTH constexpr bool can_activate(int out, int in) {
  return out % (2 * kTileIn) == 0 && slices_of(out, in) <= 4;
}
/// First block of kTileIn inputs of a slice; slice `slices` begins where the last one ends.
SPECLAB_BOTH constexpr int slice_begin(int in, int slices, int slice) {
  return tiles_of(in, kTileIn) * slice / slices;
}

inline constexpr int kLinearWarps = 8;   ///< of a block, at most
inline constexpr int kManyOutTiles = 2;  ///< tiles of outputs of a warp of linear_many.h
inline constexpr int kFewActivations =
    1 << 16;  ///< of 9 to 16 rows, for linear_few.h: 128 KiB, of 256 that an SM has for L1 and shared memory

/// How a product is cut up.
struct LinearPlan {
  bool many = false;  ///< linear_many.h
  int slices = 1;
  int warps = 0;  ///< of a block
  int blocks_x = 0, blocks_y = 1;
  int meeting = 0;           ///< outputs of so many warps meet in global memory; 0: none do
  std::size_t partials = 0;  ///< floats
};

/// With so many slices, by linear_many.h or linear_few.h.
SPECLAB_BOTH constexpr LinearPlan plan_with(int out, int rows, int slices, bool many) {
  LinearPlan plan;
  plan.slices = slices;
  plan.many = many;
  const int out_tiles = tiles_of(out, kTileOut);
  if (!plan.many) {
    plan.warps = kLinearWarps;
    plan.blocks_x = tiles_of(out_tiles, kLinearWarps / plan.slices);
    return plan;
  }
  // As many warps to share the activations as leave a block for (nearly) every SM of an A100 or H100.
  const int warp_tiles = tiles_of(out_tiles, kManyOutTiles);
  plan.blocks_y = plan.slices;
  for (plan.warps = kLinearWarps; plan.warps > 1 && tiles_of(warp_tiles, plan.warps) * plan.slices < 108;)
    plan.warps /= 2;
  plan.blocks_x = tiles_of(warp_tiles, plan.warps);
  if (plan.slices > 1) {
    plan.meeting = warp_tiles;
    plan.partials = static_cast<std::size_t>(plan.slices) * static_cast<std::size_t>(warp_tiles) *
                    static_cast<std::size_t>(kManyOutTiles * row_tiles(rows) * kTileOut * kTileRows);
  }
  return plan;
}
SPECLAB_BOTH constexpr LinearPlan plan_of(int out, int in, int rows) {
  return plan_with(out, rows, slices_of(out, in),
                   rows > 16 || (rows > 8 && rows * static_cast<long long>(in) > kFewActivations));
}

inline namespace SPECLAB_SIDE {

/// Element i of a lane's part of a tile of 16 outputs and 8 rows.
SPECLAB_DEVICE void finish_linear(const Linear& a, int out_tile, int row_tile, int i, int lane, float sum) {
  const int m = out_tile * kTileOut + lane / 4 + i / 2 * 8, row = row_tile * kTileRows + lane % 4 * 2 + i % 2;
  if (m >= a.out || row >= a.rows) return;
  if (a.bias != nullptr) sum += simt::load_constant(a.bias + m);
  float* to = a.y + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.y_stride) + m;
  simt::store(to, a.accumulate ? simt::load(to) + sum : sum);
}

/// Element i of a lane's part of the tiles of a gate and of what it gates.
SPECLAB_DEVICE void finish_gated(const Linear& a, int out_tile, int row_tile, int i, int lane, float gate,
                                 float up) {
  const int m = out_tile * kTileOut + lane / 4 + i / 2 * 8, row = row_tile * kTileRows + lane % 4 * 2 + i % 2;
  if (m >= a.out / 2 || row >= a.rows) return;
  if (a.bias != nullptr) {
    gate += simt::load_constant(a.bias + m);
    up += simt::load_constant(a.bias + a.out / 2 + m);
  }
  simt::store(a.activated + activation_at(a.rows, row, m), simt::to_bf16(activation(a.function, gate) * up));
}

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
