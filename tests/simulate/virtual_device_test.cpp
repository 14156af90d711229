// Times of forwards on devices that are not here, against sums done by hand.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/base/error.h"
#include "core/simulate/linear_device.h"
#include "core/simulate/roofline_device.h"
#include "core/simulate/table_device.h"

namespace speclab::simulate::virtual_device_test {
namespace {

/// One layer of width 4 without a cache to read: small enough to count by hand.
theory::DecoderShape tiny() {
  return {.layers = 2, .hidden = 4, .heads = 1, .kv_heads = 1, .head_dim = 4, .ffn = 8, .vocab = 16};
}

RooflineRates rates() { return {.bytes_per_second = 1e9, .flops_per_second = 1e9}; }

TEST(Roofline, TakesTheLongerOfBytesAndOperations) {
  const Forward forward{.model = "", .shape = tiny(), .rows = 3, .context = 10};
  const theory::ForwardCost cost = theory::forward_cost(
      tiny(), {.tokens = 3, .logit_rows = 3, .context = 10, .keys = theory::causal_keys(10, 3)});
  RooflineRates slow_memory = rates(), slow_arithmetic = rates();
  slow_memory.bytes_per_second = 1;
  slow_arithmetic.flops_per_second = 1;
  EXPECT_DOUBLE_EQ(Roofline(slow_memory, "d").forward_ns(forward), 1e9 * cost.bytes());
  EXPECT_DOUBLE_EQ(Roofline(slow_arithmetic, "d").forward_ns(forward), 1e9 * cost.flops());
}

TEST(Roofline, FloorsAddUp) {
  const Forward forward{.model = "", .shape = tiny()};
  RooflineRates with = rates();
  with.forward_floor_ns = 100, with.layer_floor_ns = 7, with.step_ns = 5;
  EXPECT_DOUBLE_EQ(Roofline(with, "d").forward_ns(forward), Roofline(rates(), "d").forward_ns(forward) + 114);
  EXPECT_DOUBLE_EQ(Roofline(with, "d").step_ns(), 5);
}

TEST(Roofline, ABatchReadsTheWeightsOnce) {
  RooflineRates slow_memory = rates();
  slow_memory.bytes_per_second = 1;
  const Roofline device(slow_memory, "d");
  const double one = device.forward_ns({.model = "", .shape = tiny(), .rows = 1, .context = 0, .batch = 1});
  const double two = device.forward_ns({.model = "", .shape = tiny(), .rows = 1, .context = 0, .batch = 2});
  const theory::ForwardCost cost =
      theory::forward_cost(tiny(), {.tokens = 1, .logit_rows = 1, .context = 0, .keys = 1});
  EXPECT_DOUBLE_EQ(two - one, 1e9 * (cost.bytes() - cost.weight_bytes));
}

TEST(Roofline, ATensorParallelGroupDividesTheWorkAndPaysTwoAllReducesPerLayer) {
  RooflineRates group = rates();
  group.devices = 4, group.link_latency_ns = 50, group.link_bytes_per_second = 1e9;
  const Forward forward{.model = "", .shape = tiny(), .rows = 2};
  const double alone = Roofline(rates(), "d").forward_ns(forward);
  const double bytes = 2.0 * 4 * 2;  // bf16, width 4, two rows
  EXPECT_NEAR(Roofline(group, "d").forward_ns(forward), alone / 4 + 2 * 2 * (50 + 2 * bytes * 3 / 4), 1e-9);
}

TEST(Roofline, APipelineReadsAllWeightsOneStageAfterTheOther) {
  RooflineRates group = rates();
  group.devices = 2, group.split = Split::pipeline, group.link_latency_ns = 50;
  const Forward forward{.model = "", .shape = tiny(), .rows = 2};
  EXPECT_NEAR(Roofline(group, "d").forward_ns(forward), Roofline(rates(), "d").forward_ns(forward) + 50,
              1e-9);
}

TEST(Roofline, RefusesAModelWithoutAShapeAndRatesThatAreNoRates) {
  EXPECT_THROW(Roofline(rates(), "d").forward_ns({.model = "draft"}), Error);
  RooflineRates none = rates();
  none.bytes_per_second = 0;
  EXPECT_THROW(Roofline(none, "d"), Error);
}

TEST(LinearTimes, IsTheFitOfTheTargetOrOfTheDraft) {
  const LinearTimes device({100, 10, 1}, {20, 2, 0}, 3, "fit");
  EXPECT_DOUBLE_EQ(device.forward_ns({.model = "", .rows = 4, .context = 7, .batch = 2}), 100 + 2 * (40 + 7));
  EXPECT_DOUBLE_EQ(device.forward_ns({.model = "any", .rows = 4, .context = 7}), 28);
  EXPECT_THROW(LinearTimes({0, 1, 1}, {1, 0, 0}, 0, "fit"), Error);
}

TEST(Roofline, ExpertsAndTheHostLinkAreThoseOfTheTarget) {
  RooflineRates slow_memory = rates();
  slow_memory.bytes_per_second = 1;
  RooflineRates mixture = slow_memory;
  mixture.experts = Experts{.experts = 4, .active = 2, .width = 8};
  const Forward forward{.model = "", .shape = tiny(), .rows = 3, .context = 10};
  const theory::ForwardSize size{
      .tokens = 3, .logit_rows = 3, .context = 10, .keys = theory::causal_keys(10, 3)};
  EXPECT_DOUBLE_EQ(Roofline(mixture, "d").forward_ns(forward),
                   1e9 * experts_cost(tiny(), *mixture.experts, size, 1).bytes());
  RooflineRates offloaded = rates();
  offloaded.host = HostLink{.bytes_per_second = 10, .resident_share = .5};
  EXPECT_DOUBLE_EQ(Roofline(offloaded, "d").forward_ns(forward),
                   1e9 * .5 * theory::forward_cost(tiny(), size).weight_bytes / 10);
  // A draft is dense, and on the device.
  const Forward draft{.model = "draft", .shape = tiny(), .rows = 3, .context = 10};
  EXPECT_DOUBLE_EQ(Roofline(mixture, "d").forward_ns(draft), Roofline(slow_memory, "d").forward_ns(draft));
  EXPECT_DOUBLE_EQ(Roofline(offloaded, "d").forward_ns(draft), Roofline(rates(), "d").forward_ns(draft));
  offloaded.host->bytes_per_second = 0;
  EXPECT_THROW(Roofline(offloaded, "d"), Error);
  mixture.experts->active = 5;
  EXPECT_THROW(Roofline(mixture, "d"), Error);
}

TEST(RowTables, LooksTimesUpByModelAndRows) {
  const RowTables device(
      {{"", theory::RowTimes({{1, 10.0}, {3, 14.0}})}, {"d", theory::RowTimes({{1, 2.0}})}}, 1, "table");
  EXPECT_DOUBLE_EQ(device.forward_ns({.model = "", .rows = 2}), 12);
  EXPECT_DOUBLE_EQ(device.forward_ns({.model = "", .rows = 1, .context = 0, .batch = 3}), 14);
  EXPECT_DOUBLE_EQ(device.forward_ns({.model = "d"}), 2);
  EXPECT_THROW(device.forward_ns({.model = "other"}), Error);
  EXPECT_THROW(device.forward_ns({.model = "", .rows = 0}), Error);
  EXPECT_THROW(RowTables({}, 0, "table"), Error);
  EXPECT_THROW(RowTables({{"", theory::RowTimes(1.0)}}, -1, "table"), Error);
}

TEST(RowTables, InterpolateBetweenMeasuredContexts) {
  const ContextTimes times(std::map<double, theory::RowTimes>{
      {100, theory::RowTimes({{1, 10.0}, {5, 18.0}})}, {300, theory::RowTimes({{1, 14.0}, {5, 30.0}})}});
  EXPECT_DOUBLE_EQ(times.at(1, 100), 10);
  EXPECT_DOUBLE_EQ(times.at(1, 150), 11);
  EXPECT_DOUBLE_EQ(times.at(3, 200), (14 + 22) / 2.);  // between rows and between contexts
  EXPECT_DOUBLE_EQ(times.at(5, 400), 36);              // the last slope goes on
  EXPECT_DOUBLE_EQ(times.at(5, 0), 18);                // below the first context
  const ContextTimes falling(
      std::map<double, theory::RowTimes>{{0, theory::RowTimes(4.0)}, {10, theory::RowTimes(3.0)}});
  EXPECT_DOUBLE_EQ(falling.at(1, 20), 3);  // no time falls with the context
  EXPECT_THROW(ContextTimes(std::map<double, theory::RowTimes>{}), Error);
  EXPECT_THROW(ContextTimes(std::map<double, theory::RowTimes>{{-1, theory::RowTimes(4.0)}}), Error);
}

TEST(RowTables, ABatchReadsTheCacheOfEachSequence) {
  const std::map<std::string, ContextTimes> times = {{"", theory::RowTimes({{1, 10.0}, {3, 14.0}})}};
  Forward forward{.model = "", .shape = tiny(), .rows = 1, .context = 10, .batch = 3};
  // A token has 2 layers x (keys and values) x 4 numbers x 2 bytes in the cache; two further caches of 10
  // tokens.
  EXPECT_DOUBLE_EQ(RowTables(times, 0, "t", 1e9).forward_ns(forward), 14 + 2 * 10 * 32);
  EXPECT_THROW(RowTables(times, 0, "t").forward_ns(forward), Error);  // no bandwidth
  forward.shape.reset();
  EXPECT_THROW(RowTables(times, 0, "t", 1e9).forward_ns(forward), Error);
  forward.batch = 1;
  EXPECT_DOUBLE_EQ(RowTables(times, 0, "t", 1e9).forward_ns(forward), 10);
  EXPECT_THROW(RowTables(times, 0, "t", -1), Error);
  forward.rows = 1 << 20, forward.batch = 1 << 20;  // more rows than an int can count
  EXPECT_THROW(RowTables(times, 0, "t", 1e9).forward_ns(forward), Error);
}

}  // namespace
}  // namespace speclab::simulate::virtual_device_test
