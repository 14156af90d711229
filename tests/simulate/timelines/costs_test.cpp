// Mixtures of experts, offloaded weights and batches, against counts and timelines made by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/simulate/timelines/batch.h"
#include "core/simulate/timelines/experts.h"
#include "core/simulate/timelines/offload.h"

namespace speclab::simulate::costs_test {
namespace {

theory::DecoderShape dense_shape() {
  return {.layers = 2, .hidden = 4, .heads = 1, .kv_heads = 1, .head_dim = 4, .ffn = 8, .vocab = 16};
}

/// Mean number of distinct experts over every choice of a pair of experts for each of three tokens.
double enumerated_pairs(int experts) {
  std::vector<unsigned> pairs;
  for (int a = 0; a < experts; ++a) {
    for (int b = a + 1; b < experts; ++b) pairs.push_back(1u << a | 1u << b);
  }
  double sum = 0, count = 0;
  for (const unsigned first : pairs) {
    for (const unsigned second : pairs) {
      for (const unsigned third : pairs) {
        for (unsigned set = first | second | third; set != 0; set &= set - 1) sum += 1;
        count += 1;
      }
    }
  }
  return sum / count;
}

TEST(Experts, TheUnionIsTheMeanOverAllChoices) {
  EXPECT_NEAR(expected_experts({4, 2, 0}, 3), enumerated_pairs(4), 1e-12);
  EXPECT_NEAR(expected_experts({6, 2, 0}, 3), enumerated_pairs(6), 1e-12);
  EXPECT_DOUBLE_EQ(expected_experts({6, 2, 0}, 1), 2);
  EXPECT_DOUBLE_EQ(expected_experts({6, 6, 0}, 5), 6);
  EXPECT_EQ(expected_experts({6, 6, 0}, 0), 0);
}

TEST(Experts, PublishedRatiosOfTheUnion) {  // of n tokens to one token, 8 of 256 and 8 of 128 experts
  const auto ratio = [](int experts, int tokens) {
    return expected_experts({experts, 8, 0}, tokens) / expected_experts({experts, 8, 0}, 1);
  };
  EXPECT_NEAR(ratio(256, 2), 1.97, .005);
  EXPECT_NEAR(ratio(256, 5), 4.70, .005);
  EXPECT_NEAR(ratio(256, 9), 7.95, .005);
  EXPECT_NEAR(ratio(128, 2), 1.94, .005);
  EXPECT_NEAR(ratio(128, 5), 4.41, .005);
  EXPECT_NEAR(ratio(128, 9), 7.05, .005);
}

TEST(Experts, OneExpertIsTheDenseModel) {
  const theory::ForwardSize size{.tokens = 3, .logit_rows = 3, .context = 10, .keys = 36};
  const theory::ForwardCost dense = theory::batch_cost(theory::forward_cost(dense_shape(), size), 2),
                            one = experts_cost(dense_shape(), {1, 1, 0}, size, 2);
  EXPECT_DOUBLE_EQ(one.flops(), dense.flops());
  EXPECT_DOUBLE_EQ(one.bytes(), dense.bytes());
}

TEST(Experts, ATokenPaysForItsOwnExpertsAndAForwardReadsTheUnion) {
  const theory::ForwardSize size{.tokens = 3, .logit_rows = 3, .context = 0, .keys = 6};
  theory::DecoderShape two = dense_shape(), none = dense_shape();
  two.ffn = 2 * 5, none.ffn = 0;
  const theory::ForwardCost cost = experts_cost(dense_shape(), {4, 2, 5}, size, 2);
  EXPECT_DOUBLE_EQ(cost.flops(), 2 * theory::forward_cost(two, size).flops());
  // An expert of width 5: three matrices of 4 x 5 in each of two layers, two bytes a weight.
  const double expert = 3 * 4 * 5 * 2 * 2;
  EXPECT_NEAR(cost.weight_bytes,
              theory::forward_cost(none, size).weight_bytes + expected_experts({4, 2, 0}, 6) * expert, 1e-9);
}

TEST(Experts, ImpossibleNumbersAreRefused) {
  EXPECT_THROW(expected_experts({4, 5, 0}, 1), Error);
  EXPECT_THROW(expected_experts({0, 0, 0}, 1), Error);
  EXPECT_THROW(expected_experts({4, 2, 0}, -1), Error);
}

/// Time of a forward in a long text: layer after layer is moved and then computed, with room for two layers
/// on the device.
double pipelined(int layers, double move, double compute) {
  constexpr int kForwards = 400;
  std::vector<double> computed = {0, 0};  // the last two layers
  double moved = 0, last = 0;
  for (int layer = 0; layer < kForwards * layers; ++layer) {
    moved = std::max(moved, computed[layer % 2 == 0 ? 0 : 1]) + move;
    last = std::max(moved, last) + compute;
    computed[layer % 2 == 0 ? 0 : 1] = last;
  }
  return last / kForwards;
}

TEST(Offload, IsTheLongerOfTransferAndArithmetic) {
  const theory::ForwardCost cost =
      theory::forward_cost(dense_shape(), {.tokens = 1, .logit_rows = 1, .context = 0, .keys = 1});
  const HostLink link{.bytes_per_second = 1e9, .resident_share = .25};
  const double transfer = .75 * cost.weight_bytes;  // nanoseconds at a byte per nanosecond
  EXPECT_DOUBLE_EQ(offloaded_ns(transfer / 2, cost, link), transfer);
  EXPECT_DOUBLE_EQ(offloaded_ns(transfer * 2, cost, link), transfer * 2);
  EXPECT_DOUBLE_EQ(offloaded_ns(7, cost, {.bytes_per_second = 1e9, .resident_share = 1}), 7);
  EXPECT_THROW(require_link({.bytes_per_second = 0}, "d"), Error);
  EXPECT_THROW(require_link({.bytes_per_second = 1, .resident_share = 1.5}, "d"), Error);
}

TEST(Offload, TheFormulaIsTheTimeOfAPipelineOfLayers) {
  for (const double compute : {.25, 1.0, 3.0})
    EXPECT_NEAR(pipelined(30, 1, compute), 30 * std::max(1.0, compute), .02) << compute;
}

TEST(Batches, TheClosedFormIsWhereTheStepTimesCross) {
  const BatchCosts costs{
      .floor = 5, .weights = 40, .cache = .5, .row = .25, .draft = 12, .draft_sequence = .1};
  const double tau = 2.5;
  const int rows = 5;
  const auto speedup = [&](double b) {
    const double plain = costs.floor + costs.weights + b * costs.cache;
    return tau * plain / (costs.floor + b * rows * costs.row + costs.draft + b * costs.draft_sequence);
  };
  const BatchRange range = paying_batches(costs, tau, rows);
  EXPECT_EQ(range.from, 0);
  EXPECT_NEAR(speedup(range.to), 1, 1e-12);
  EXPECT_GT(speedup(.99 * range.to), 1);
  EXPECT_LT(speedup(1.01 * range.to), 1);
}

TEST(Batches, LongCachesTurnTheRangeRound) {
  BatchCosts costs{.weights = 40, .cache = 1, .row = .25, .draft = 12};
  EXPECT_TRUE(std::isinf(paying_batches(costs, 2, 4).to));  // pays at every batch
  EXPECT_EQ(paying_batches(costs, 2, 4).from, 0);
  costs.draft = 100;  // too slow for one sequence, but the caches make up for it
  const BatchRange range = paying_batches(costs, 2, 4);
  EXPECT_NEAR(range.from, 20, 1e-12);  // (2 x 40 - 100) / (4 x .25 - 2 x 1)
  EXPECT_TRUE(std::isinf(range.to));
  costs.cache = 0;
  EXPECT_EQ(paying_batches(costs, 2, 4).to, 0);  // never
  EXPECT_THROW(paying_batches(costs, .5, 4), Error);
}

}  // namespace
}  // namespace speclab::simulate::costs_test
