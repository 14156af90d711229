#pragma once

#include "core/backend/backend.h"
#include "core/backend/cuda/kernels/activation.h"
#include "core/backend/cuda/kernels/linear/fragments.h"
#include "core/backend/cuda/kernels/norm_kernel.h"

// Linear layers for 1 to 128 rows: their arguments, and how the work is divided. Two kernels compute them,
// with the same bits.
//
// Row invariance. The order of a sum depends only on the shape of the weights, so the bits of a row do not
// depend on the number of rows. The inputs k are cut into slices_of(out, in) slices. Within a slice the
// matrix unit adds steps of 16 in ascending k. The sums of the slices are added in order, without float
// atomics. Everything else here may be tuned, because it does not change the bits.
//
// Both kernels stream the weights of each warp through a ring in shared memory (weight_ring.h).
//
// Few rows (linear_few.h): the slices of a tile of outputs are warps of one block. Their sums are added up in
// shared memory, so no second launch or other block is needed. Every warp reads the activations of its slice
// itself. A group is the warps of one tile. The groups of a block read the same activations at about the same
// time, so one group reads them from L2 and the other groups find them in L1. For each group a block
// multiplies 16 * `in` weights. For all groups together it reads n * `in` activations from L2. This number
// grows with n, so this kernel gets at most 16 rows (plan_of()).
//
// Many rows (linear_many.h): a block has one slice and up to 256 outputs. It copies the activations of its
// slice to shared memory, once for all its warps. Each slice has blocks of its own. If there are several
// slices, the warps write their sums to global memory (L2). Of the warps with the same outputs, the one that
// finishes last adds the sums in order.
//
// For n rows, the table shows the traffic of all products of a forward as multiples of the bytes of the
// weights (269 MB, 2.47 GB, 15.0 GB for the three models), and the products' time as a multiple of the time
// to read the weights from memory. It is calculated from the plans below, not measured
// (cuda_linear_plan_test.cpp calculates it again). It assumes an H100 with 3.0 TB/s from memory, 5.5 TB/s
// from L2, 128 bytes per clock and SM from shared memory (28 TB/s) and 600 TFLOP/s with mma.sync. It also
// assumes that the slowest of these four sets the time of each product. Launches, the start and end of each
// kernel, and the wait for the last slice are not counted.
//
//                              SmolLM2-135M          Llama-3.2-1B            Llama-3.1-8B
//   n                       1    16    64   128      1    16    64   128      1    16    64   128
//   activations from L2   .03   .52  1.24  2.47    .03   .24   .45   .89    .02   .19   .36   .71
//   sums to and from L2     0     0  1.32  2.63      0   .01   .19   .38      0   .00   .06   .13
//   shared memory        2.00  2.00  5.24  8.47   2.00  2.14  4.45  6.89   2.00  2.16  4.36  6.71
//   time                 1.00  1.02  2.00  3.37   1.00  1.01  1.05  1.28   1.00  1.00  1.00  1.11
// At n = 1, launches limit the speed of small models: by estimate, a forward of SmolLM2-135M takes 0.3 ms,
// but reading its weights takes only 0.09 ms. Launches take the same time for 1 row and for 128 rows. So the
// measured t(128) of a small model is below the value in the last line of the table.

namespace speclab::cuda {

inline constexpr int kMostRows = 128;

/// One row before its norm; the kernel computes the norm.
struct NormedRow {
  const float* x = nullptr;  ///< [in]; null: read the activations instead
  NormOf kind = NormOf::kRms;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float eps = 0;
};

/// y = W x + bias, or y += W x + bias, or f(W_gate x + bias) * (W_up x + bias) rounded as input of the next
/// layer.
struct Linear {
  const simt::u16* weights = nullptr;  ///< [out, in] as in fragments.h, 16-byte aligned
  int out = 0, in = 0;
  const simt::u16* activations = nullptr;  ///< [rows, in] as in fragments.h, 16-byte aligned
  int rows = 0;                            ///< 1 to kMostRows
  NormedRow norm{};  ///< if norm.x is not null, replaces the activations; only if can_norm(rows, in)
  const float* bias = nullptr;  ///< [out]; null: none
  float* y = nullptr;           ///< output m of row i at y[i * y_stride + m]
  int y_stride = 0;
  bool accumulate = false;
  // Not null: W holds W_gate, then W_up, and the result is written here instead of to y, [rows, out / 2] as
  // in fragments.h. Only if can_activate(out, in).
  simt::u16* activated = nullptr;
  Activation function = Activation::kSilu;
  // Memory in which the sums of slices are combined, see LinearPlan. Launches of one
  // stream may share it, because they touch it only after wait_for_previous().
  float* partials = nullptr;      ///< 16-byte aligned
  simt::u32* arrivals = nullptr;  ///< zeros before and after the launch
};

/// Number of slices of the sum over k: 1, 2, 4 or 8. It is doubled until at least 1,024 warps share the
/// matrix, but not if a slice would then have fewer than 128 inputs. The number of slices is part of the
/// numerics class. Why 1,024 warps: to read 3.0 to 4.3 TB/s at a latency of 0.8 us, 2.4 to 3.4 MB must be in
/// flight. 1,000 warps of linear_few.h have 8 MB in flight (kFewAhead), and linear_many.h has 6 MB with half
/// as many warps (kManyAhead).
SPECLAB_BOTH constexpr int slices_of(int out, int in) {
  int slices = 1;
  while (slices < 8 && tiles_of(out, kTileOut) * slices < 1024 && tiles_of(in, kTileIn) >= 8 * slices)
    slices *= 2;
  return slices;
}
SPECLAB_BOTH constexpr int slices_of(const Linear& a) { return slices_of(a.out, a.in); }
/// True if slices are added to y in the order in which they finish. Only benchmarks do this
/// (linear_free_kernel.h), never the layers of a model.
SPECLAB_BOTH constexpr bool meet_in_y(const Linear&) { return false; }
/// True if every block may compute the norm of the row itself while the first weights are in flight. That
/// saves a launch at n = 1, where a launch takes longer than the norm of the row.
SPECLAB_BOTH constexpr bool can_norm(int rows, int in) { return rows == 1 && in <= 16384; }
/// True if one block can compute outputs of a gate and the outputs that they gate. For this, each half of the
/// outputs (W_gate and W_up) must be a multiple of kTileIn, because the outputs are inputs of the next layer.
/// And a thread block of linear_few.h must have at least two tiles, one of the gate and one of what it gates.
SPECLAB_BOTH constexpr bool can_activate(int out, int in) {
  return out % (2 * kTileIn) == 0 && slices_of(out, in) <= 4;
}
/// Returns the first block of kTileIn inputs of a slice. slice_begin(in, slices, slices) is the end of the
/// last slice.
SPECLAB_BOTH constexpr int slice_begin(int in, int slices, int slice) {
  return tiles_of(in, kTileIn) * slice / slices;
}

inline constexpr int kLinearWarps = 8;   ///< largest number of warps per block
inline constexpr int kManyOutTiles = 2;  ///< tiles of outputs per warp of linear_many.h
/// Number of blocks of kTileIn inputs whose weights a warp has in flight: 1 KiB per block of inputs and tile
/// of outputs. Eight warps of linear_few.h have 64 KiB in flight, and eight of linear_many.h 96 KiB.
inline constexpr int kFewAhead = 8, kManyAhead = 6;
/// linear_few.h computes 9 to 16 rows only if they have at most this many activations (128 KiB). An SM of an
/// H100 has 256 KiB for shared memory and L1. The rings of two blocks take 128 KiB, so L1 gets about 128 KiB.
inline constexpr int kFewActivations = 1 << 16;

/// How the work of a product is divided.
struct LinearPlan {
  bool many = false;  ///< linear_many.h
  int slices = 1;
  int warps = 0;  ///< per block
  int blocks_x = 0, blocks_y = 1;
  int meeting = 0;           ///< groups of outputs whose slices are added up in global memory; 0: none
  std::size_t partials = 0;  ///< floats in Linear::partials
};

/// Returns the plan for a number of slices, for the kernel of linear_many.h if `many`, otherwise for the one
/// of linear_few.h.
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
  // Larger blocks copy the activations less often, but (nearly) every SM of an A100 or H100 must get a block.
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

/// Stores element i of a lane's part of a tile of 16 outputs and 8 rows.
SPECLAB_DEVICE void finish_linear(const Linear& a, int out_tile, int row_tile, int i, int lane, float sum) {
  const int m = out_tile * kTileOut + lane / 4 + i / 2 * 8, row = row_tile * kTileRows + lane % 4 * 2 + i % 2;
  if (m >= a.out || row >= a.rows) return;
  if (a.bias != nullptr) sum += simt::load_constant(a.bias + m);
  float* to = a.y + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.y_stride) + m;
  simt::store(to, a.accumulate ? simt::load(to) + sum : sum);
}

/// Combines element i of a lane's part of a tile of the gate with the same element of the tile that it gates,
/// and stores the result.
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
