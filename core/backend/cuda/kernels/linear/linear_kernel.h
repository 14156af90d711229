#pragma once

#include "core/backend/cuda/kernels/linear/linear_few.h"
#include "core/backend/cuda/kernels/linear/linear_many.h"

// Chooses the kernel of a linear layer (linear.h).

namespace speclab::cuda {

template <typename Visit>
void with_kernel(const Linear& a, const Visit& visit) {
  if (a.rows < 1 || a.rows > kMostRows) fail_arguments("linear", "the number of rows must be 1 to 128");
  if (a.norm.x != nullptr && !can_norm(a.rows, a.in))
    fail_arguments("linear", "a norm needs a single row of at most 16384 inputs");
  if (a.activated != nullptr && !can_activate(a.out, a.in))
    fail_arguments("linear", "this shape cannot be gated (can_activate)");
  const LinearPlan plan = plan_of(a.out, a.in, a.rows);
  const auto few = [&](const auto& kernel) {
    visit(kernel, LaunchShape{.grid_x = plan.blocks_x,
                              .threads = kernel.kThreads,
                              .shared_bytes = kernel.shared_bytes(a.in)});
  };
  const auto many = [&](const auto& kernel) {
    if (plan.meeting > 0 && (a.partials == nullptr || a.arrivals == nullptr))
      fail_arguments("linear", "several slices need partials and arrivals");
    visit(kernel, LaunchShape{.grid_x = plan.blocks_x,
                              .grid_y = plan.blocks_y,
                              .threads = plan.warps * simt::kWarp,
                              .shared_bytes = kernel.shared_bytes(plan.warps)});
  };
  const int tiles = row_tiles(a.rows);
  if (a.norm.x != nullptr) return few(LinearFewKernel<1, true>{a});
  if (!plan.many) return tiles == 1 ? few(LinearFewKernel<1, false>{a}) : few(LinearFewKernel<2, false>{a});
  switch (tiles) {
    case 2: return many(LinearManyKernel<2>{a});
    case 3: return many(LinearManyKernel<3>{a});
    case 4: return many(LinearManyKernel<4>{a});
    case 6: return many(LinearManyKernel<6>{a});
    case 8: return many(LinearManyKernel<8>{a});
    case 12: return many(LinearManyKernel<12>{a});
    default: return many(LinearManyKernel<16>{a});
  }
}

}  // namespace speclab::cuda
