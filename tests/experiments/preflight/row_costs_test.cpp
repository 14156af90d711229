// Where another row becomes expensive, on times whose change points are known, and the floor of a forward.
#include "experiments/preflight/row_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/experiments/simulate/priced_run.h"

namespace speclab::row_costs_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

/// t(n) for n from 1 to 16.
template <class Time>
std::map<int, double> times_of(Time time) {
  std::map<int, double> out;
  for (int n = 1; n <= 16; ++n) out[n] = time(n);
  return out;
}

TEST(RowStretches, OneLineIsOneStretch) {
  const auto stretches = row_stretches(times_of([](int n) { return 1 + .05 * (n - 1); }));
  ASSERT_EQ(stretches.size(), 1u);
  EXPECT_EQ(stretches[0].from, 1);
  EXPECT_EQ(stretches[0].to, 16);
  EXPECT_NEAR(stretches[0].row_cost, .05, 1e-12);
  EXPECT_EQ(stretches[0].first_row_cost, 0);
}

TEST(RowStretches, AJumpIsAChangePoint) {
  const auto stretches =
      row_stretches(times_of([](int n) { return n <= 8 ? 1 + .02 * (n - 1) : 1.54 + .1 * (n - 9); }));
  ASSERT_EQ(stretches.size(), 2u);
  EXPECT_EQ(stretches[0].to, 8);
  EXPECT_EQ(stretches[1].from, 9);
  EXPECT_EQ(stretches[1].to, 16);
  EXPECT_NEAR(stretches[0].row_cost, .02, 1e-12);
  EXPECT_NEAR(stretches[1].row_cost, .1, 1e-12);
  EXPECT_NEAR(stretches[1].first_row_cost, 1.54 - 1.14, 1e-12);
}

TEST(RowStretches, AKinkIsAChangePoint) {
  const auto stretches = row_stretches(times_of([](int n) { return n <= 8 ? 1.0 : 1 + .1 * (n - 8); }));
  ASSERT_EQ(stretches.size(), 2u);
  EXPECT_THAT(stretches[1].from, AnyOf(8, 9)) << "the time of 8 rows lies on both lines";
  EXPECT_NEAR(stretches[0].row_cost, 0, 1e-12);
  EXPECT_NEAR(stretches[1].row_cost, .1, 1e-12);
}

TEST(RowStretches, NoiseOfTwoPercentIsNoChangePoint) {
  const auto stretches =
      row_stretches(times_of([](int n) { return 1 + .05 * (n - 1) + (n % 2 == 0 ? .01 : -.01); }));
  EXPECT_EQ(stretches.size(), 1u);
}

TEST(RowStretches, FewTimes) {
  EXPECT_TRUE(row_stretches({}).empty());
  const auto one = row_stretches({{1, 1.0}});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].to, 1);
  EXPECT_EQ(one[0].row_cost, 0);
  const auto two = row_stretches({{1, 1.0}, {5, 1.4}});
  ASSERT_EQ(two.size(), 1u);
  EXPECT_NEAR(two[0].row_cost, .1, 1e-12);
  EXPECT_EQ(row_stretches({{1, 1.0}, {2, 5.0}, {3, 1.0}}).size(), 1u) << "three times cannot be divided";
}

class RowCosts : public fixtures::PricedRun {};

// A forward of the hand-made reference reads 100 bytes, and the machine reads a gigabyte per second.
TEST_F(RowCosts, TheFloorIsBytesOverBandwidth) {
  const RunData run = load_run(calibrated_run("run", 1'600'000, 200'000, 1.2));
  const json costs = row_costs(*run.cases.at(0), run.calibration);
  EXPECT_NEAR(costs["t1_ms"].get<double>(), .2, 1e-9);
  EXPECT_NEAR(costs["bytes"].get<double>(), 100, 1e-9);
  EXPECT_NEAR(costs["floor_ms"].get<double>(), 1e-4, 1e-12);
  EXPECT_NEAR(costs["over_floor"].get<double>(), 2000, 1e-6);
  ASSERT_EQ(costs["stretches"].size(), 1u);
  EXPECT_NEAR(costs["stretches"][0]["row_cost"].get<double>(), .1, 1e-9)
      << "three rows take 1.2 times as long";
  EXPECT_TRUE(costs["change_points"].empty());
  EXPECT_THAT(row_costs_text(costs),
              AllOf(HasSubstr("2000 times its floor"), HasSubstr("10.0 % of a forward")));
}

TEST_F(RowCosts, WithoutABandwidthThereIsNoFloor) {
  environment_.erase("read_bandwidth_bytes_per_second");
  const RunData run = load_run(calibrated_run("run", 1'600'000, 200'000));
  const json costs = row_costs(*run.cases.at(0), run.calibration);
  EXPECT_TRUE(costs["floor_ms"].is_null());
  EXPECT_TRUE(costs["over_floor"].is_null());
  EXPECT_THAT(row_costs_text(costs), HasSubstr("floor is not known"));
}

TEST_F(RowCosts, ChangePointsAreNamed) {
  json table = {{"t_n_ns", json::object()}};
  for (int n = 1; n <= 16; ++n) table["t_n_ns"][std::to_string(n)] = n <= 8 ? 1e6 : 2e6;
  const RunData run = load_run(write_run("run", 1'600'000));
  const json costs = row_costs(*run.cases.at(0), table);
  EXPECT_EQ(costs["change_points"], json::array({9}));
  EXPECT_THAT(row_costs_text(costs), HasSubstr("Change point at 9 rows: this row adds 100.0 %"));
}

}  // namespace
}  // namespace speclab::row_costs_test
