#pragma once

#include <vector>

#include "core/backend/cuda/kernels/linear/linear_kernel.h"

// Linear layers whose bits may depend on the number of rows: the kernels of linear.h without row invariance.
// They are for benchmarks only ("cuda/linear_free" of speclab_bench). Each variant of these kernels is called
// a form. The fastest form shows what row invariance costs. No model runs on them.
//
// The forms differ only in the choices that row invariance fixes: the number of slices, the kernel that
// computes them (which decides whether the sums of the slices are combined in shared memory or in L2), and
// whether these sums are added in order. Everything else (tiles, loads ahead, blocks) can be tuned in
// linear.h too. One of the forms makes the choices of linear.h.

namespace speclab::cuda {

struct LinearFree : Linear {
  int slices = 1;     ///< 1, 2, 4 or 8; up to 16 if in_y
  bool many = false;  ///< linear_many.h, for more than 8 rows; otherwise linear_few.h, for up to 16
  bool in_y = false;  ///< only with `many`: slices are added to y in any order; requires accumulate
};
SPECLAB_BOTH constexpr int slices_of(const LinearFree& a) { return a.slices; }
SPECLAB_BOTH constexpr bool meet_in_y(const LinearFree& a) { return a.in_y; }
/// A LinearFree whose slices are never added to y directly. It is for more than 64 rows, where registers are
/// scarce.
struct LinearFreeOrdered : LinearFree {};
SPECLAB_BOTH constexpr bool meet_in_y(const LinearFreeOrdered&) { return false; }
inline constexpr int kMostRowsInY = 64;

/// True if the kernels are compiled for this number of rows. They are compiled for 1, 2, 4, 8 and 16 row
/// tiles, that is, for up to 16, 25 to 32, 49 to 64 and 97 to 128 rows.
SPECLAB_BOTH constexpr bool has_free_forms(int rows) {
  return (row_tiles(rows) & (row_tiles(rows) - 1)) == 0 && rows <= kMostRows;
}

/// All forms of a layer. Its partials and arrivals must have the sizes in free_meeting(layer). Forms with
/// in_y always accumulate, so a model would have to clear y first. Benchmarks do not count the time to clear
/// y, which favours these forms.
inline std::vector<LinearFree> free_forms(const Linear& layer) {
  std::vector<LinearFree> forms;
  for (int slices = 1; slices <= 16 && slices * 2 <= tiles_of(layer.in, kTileIn); slices *= 2) {
    if (slices <= 8 && layer.rows <= 2 * kTileRows) forms.push_back({layer, slices, false, false});
    if (slices <= 8 && layer.rows > kTileRows) forms.push_back({layer, slices, true, false});
    if (slices > 1 && layer.rows > kTileRows && layer.rows <= kMostRowsInY) {
      forms.push_back({layer, slices, true, true});
      forms.back().accumulate = true;
    }
  }
  return forms;
}
/// A plan with the largest partials and arrivals that any form needs.
inline LinearPlan free_meeting(const Linear& layer) { return plan_with(layer.out, layer.rows, 8, true); }

inline namespace SPECLAB_SIDE {

SPECLAB_DEVICE void finish_linear(const LinearFree& a, int out_tile, int row_tile, int i, int lane,
                                  float sum) {
  if (!a.in_y) return finish_linear(static_cast<const Linear&>(a), out_tile, row_tile, i, lane, sum);
  const int m = out_tile * kTileOut + lane / 4 + i / 2 * 8, row = row_tile * kTileRows + lane % 4 * 2 + i % 2;
  if (m >= a.out || row >= a.rows) return;
  if (a.bias != nullptr && simt::block_y() == 0) sum += simt::load_constant(a.bias + m);
  simt::add_in_any_order(a.y + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.y_stride) + m, sum);
}
SPECLAB_DEVICE void finish_linear(const LinearFreeOrdered& a, int out_tile, int row_tile, int i, int lane,
                                  float sum) {
  finish_linear(static_cast<const Linear&>(a), out_tile, row_tile, i, lane, sum);
}

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const LinearFree& a, const Visit& visit) {
  if (a.rows < 1 || !has_free_forms(a.rows))
    fail_arguments("linear_free", "no form for this number of rows (has_free_forms)");
  if (a.norm.x != nullptr || a.activated != nullptr)
    fail_arguments("linear_free", "a form takes no norm and no gate");
  if (a.many ? a.rows <= kTileRows || a.slices > (a.in_y ? 16 : 8)
             : a.rows > 2 * kTileRows || a.slices > kLinearWarps || a.in_y)
    fail_arguments("linear_free",
                   "linear_few.h takes up to 16 rows and 8 slices; linear_many.h takes more than 8 rows and "
                   "up to 8 slices, or 16 with in_y");
  if (a.in_y && (!a.accumulate || a.rows > kMostRowsInY))
    fail_arguments("linear_free", "in_y requires accumulate and at most 64 rows");
  const LinearPlan plan = plan_with(a.out, a.rows, a.slices, a.many);
  if (plan.meeting > 0 && !a.in_y && (a.partials == nullptr || a.arrivals == nullptr))
    fail_arguments("linear_free", "several slices need partials and arrivals");
  const auto start = [&](const auto& kernel, int shared_bytes) {
    visit(kernel, LaunchShape{.grid_x = plan.blocks_x,
                              .grid_y = plan.blocks_y,
                              .threads = plan.warps * simt::kWarp,
                              .shared_bytes = shared_bytes});
  };
  const int tiles = row_tiles(a.rows);
  if (!a.many) {
    const auto few = [&](const auto& kernel) { start(kernel, kernel.shared_bytes(a.in)); };
    return tiles == 1 ? few(LinearFewKernel<1, false, LinearFree>{a})
                      : few(LinearFewKernel<2, false, LinearFree>{a});
  }
  const auto many = [&](const auto& kernel) { start(kernel, kernel.shared_bytes(plan.warps)); };
  switch (tiles) {
    case 2: return many(LinearManyKernel<2, LinearFree>{a});
    case 4: return many(LinearManyKernel<4, LinearFree>{a});
    case 8: return many(LinearManyKernel<8, LinearFree>{a});
    default: return many(LinearManyKernel<16, LinearFreeOrdered>{{a}});
  }
}

}  // namespace speclab::cuda
