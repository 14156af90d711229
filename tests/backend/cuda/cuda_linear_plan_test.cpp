#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/backend/cuda/kernels/linear/linear.h"

// Checks the table of core/backend/cuda/kernels/linear/linear.h against the plans that the kernels follow.

namespace speclab::cuda::cuda_linear_plan_test {
namespace {

struct Traffic {
  double weights = 0, activations = 0, sums = 0, shared = 0, seconds = 0;

  static Traffic of(int out, int in, int rows) {
    const LinearPlan plan = plan_of(out, in, rows);
    const double padded = row_tiles(rows) * kTileRows,
                 weights = 2.0 * static_cast<double>(weight_elements(out, in));
    Traffic t{weights, 0, 0, 0, 0};
    if (plan.many) {
      t.activations = 2 * padded * in * plan.blocks_x;  // over all slices
      t.sums = 8.0 * static_cast<double>(plan.partials);
      t.shared = 2 * weights + t.activations + weights * row_tiles(rows) / (2 * kManyOutTiles);
    } else {
      t.activations = 2.0 * rows * in * plan.blocks_x;
      t.shared = 2 * weights;  // in and out
    }
    const double products = 2.0 * out * in * padded;
    t.seconds = std::max(
        {weights / 3.0e12, (weights + t.activations + t.sums) / 5.5e12, t.shared / 28e12, products / 600e12});
    return t;
  }
  void add(const Traffic& other, int times) {
    weights += times * other.weights;
    activations += times * other.activations;
    sums += times * other.sums;
    shared += times * other.shared;
    seconds += times * other.seconds;
  }
};

struct Shapes {
  int layers;
  std::vector<std::pair<int, int>> layer, once;
};
Traffic forward(const Shapes& shapes, int rows) {
  Traffic total;
  for (const auto& [out, in] : shapes.layer) total.add(Traffic::of(out, in, rows), shapes.layers);
  for (const auto& [out, in] : shapes.once) total.add(Traffic::of(out, in, rows), 1);
  return total;
}

struct Row {
  int rows;
  double activations, sums, shared, time;
};
void expect(const Shapes& shapes, const std::vector<Row>& table) {
  for (const Row& row : table) {
    SCOPED_TRACE(row.rows);
    const Traffic t = forward(shapes, row.rows);
    EXPECT_NEAR(t.activations / t.weights, row.activations, .006);
    EXPECT_NEAR(t.sums / t.weights, row.sums, .006);
    EXPECT_NEAR(t.shared / t.weights, row.shared, .006);
    EXPECT_NEAR(t.seconds / (t.weights / 3.0e12), row.time, .006);
  }
}

TEST(CudaLinearPlan, TrafficIsWhatTheHeaderSays) {
  const Shapes smol{30, {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}}, {{49152, 576}}};
  const Shapes llama1{16, {{3072, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192}}, {{128256, 2048}}};
  const Shapes llama8{32, {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}, {{128256, 4096}}};
  expect(
      smol,
      {{1, .03, 0, 2, 1}, {16, .52, 0, 2, 1.02}, {64, 1.24, 1.32, 5.24, 2.0}, {128, 2.47, 2.63, 8.47, 3.37}});
  expect(llama1, {{1, .03, 0, 2, 1},
                  {16, .24, .01, 2.14, 1.01},
                  {64, .45, .19, 4.45, 1.05},
                  {128, .89, .38, 6.89, 1.28}});
  expect(llama8,
         {{1, .02, 0, 2, 1}, {16, .19, 0, 2.16, 1}, {64, .36, .06, 4.36, 1}, {128, .71, .13, 6.71, 1.11}});
  // Goals for products of the 8B shape: t(16), t(64) and t(128) in units of t(1).
  const double one = forward(llama8, 1).seconds;
  EXPECT_LE(forward(llama8, 16).seconds, 1.05 * one);
  EXPECT_LE(forward(llama8, 64).seconds, 1.15 * one);
  EXPECT_LE(forward(llama8, 128).seconds, 1.35 * one);
}

// Reading at 4.3 TB/s (an H200) with 0.8 us of latency needs 3.4 MB in flight. The plans have almost twice as
// much: 48 KiB on each of 128 multiprocessors.
TEST(CudaLinearPlan, EnoughWeightsAreUnderWay) {
  for (const auto& [out, in] : {std::pair{6144, 4096}, std::pair{4096, 4096}, std::pair{28672, 4096},
                                std::pair{4096, 14336}, std::pair{128256, 4096}, std::pair{3072, 2048},
                                std::pair{2048, 2048}, std::pair{16384, 2048}, std::pair{2048, 8192}}) {
    for (const int rows : {1, 16, 64, 128}) {
      const LinearPlan plan = plan_of(out, in, rows);
      const int warps = plan.blocks_x * plan.blocks_y * plan.warps,
                tiles = plan.many ? kManyAhead * kManyOutTiles : kFewAhead;
      EXPECT_GE(warps * tiles * 1024, 128 * (48 << 10)) << out << " x " << in << " for " << rows;
    }
  }
}

}  // namespace
}  // namespace speclab::cuda::cuda_linear_plan_test
