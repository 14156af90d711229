// Where speculation stops paying off, for a run made by hand whose speedups a person can compute.
#include "experiments/simulate/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/simulate/repricing.h"
#include "experiments/simulate/run_shapes.h"
#include "tests/experiments/simulate/priced_run.h"

namespace speclab::sweep_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DeviceSweep : public PricedRun {
 protected:
  RunData loaded() { return load_run(calibrated_run("run", 1'600'000, 1e6)); }
  static std::size_t place(const json& sweep, double point) {
    for (std::size_t i = 0; i < sweep["points"].size(); ++i) {
      if (sweep["points"][i] == point) return i;
    }
    ADD_FAILURE() << "no point " << point;
    return 0;
  }
};

TEST_F(DeviceSweep, FreeRowsReplaceTheTimesOfTheRun) {
  const json sweep = swept(loaded(), SweepAxis::rows, ideal_device());
  const json row = only_case(sweep);
  const auto at = [&](double rows) { return row["speedup"][place(sweep, rows)].get<double>(); };
  // A step drafts for .2 ms and verifies three rows. A forward of one row takes 1 ms.
  EXPECT_NEAR(at(1), 2 / (.2 + 3), 1e-9);
  EXPECT_NEAR(at(2), 2 / (.2 + 1.5), 1e-9);
  EXPECT_NEAR(at(4), 2 / (.2 + 1), 1e-9);
  EXPECT_NEAR(at(1024), 2 / (.2 + 1), 1e-9);
  EXPECT_EQ(row["pays"], "above");
  EXPECT_EQ(row["break_even"], 2);
  EXPECT_TRUE(sweep["device"].is_null());
  EXPECT_THAT(swept_text(sweep), AllOf(HasSubstr("Simulated"), HasSubstr("free rows"), HasSubstr("from 2")));
}

TEST_F(DeviceSweep, ABatchUsesUpTheArithmetic) {
  const json sweep = swept(loaded(), SweepAxis::batch, device(table_device()));
  const json row = only_case(sweep);
  EXPECT_NEAR(row["speedup"][0].get<double>(), 2 * 110 / 200., 1e-9);
  EXPECT_NEAR(row["speedup"][place(sweep, 2)].get<double>(), 2 * 135 / 300., 1e-9);
  EXPECT_EQ(row["pays"], "below");
  EXPECT_EQ(row["break_even"], 1);
  EXPECT_TRUE(row["closed_form"].is_null());  // no roofline
}

TEST_F(DeviceSweep, ARunWithoutCalibrationHasNoFreeRows) {
  const RunData run = load_run(write_run("run", 1'600'000));
  const json row = only_case(swept(run, SweepAxis::rows, ideal_device()));
  EXPECT_TRUE(row["speedup"].is_null());
  EXPECT_THAT(row["problem"].get<std::string>(), HasSubstr("calibration"));
}

TEST_F(DeviceSweep, OnlyADeviceWithARooflineHasARidge) {
  EXPECT_THROW(swept(loaded(), SweepAxis::ridge, device(table_device())), Error);
}

/// The run with models of known shape: a target of eight layers, and one of these layers as its draft.
class ShapedSweep : public DeviceSweep {
 protected:
  ShapedSweep() {
    Shape shape = tiny_shape();
    shape.layers = 8;
    write_tiny_llama(dir_.path() / "model", shape, 1);
    const std::string path = (dir_.path() / "model").string();
    environment_["models"] = {{"target", {{"sha256", "1"}, {"name", "m"}, {"path", path}}},
                              {"d", {{"sha256", "1"}, {"name", "m"}, {"path", path}, {"layers", {0}}}}};
  }
  static theory::ForwardCost cost(const theory::DecoderShape& shape, int rows) {
    return theory::forward_cost(
        shape, {.tokens = rows, .logit_rows = rows, .context = 0, .keys = theory::causal_keys(0, rows)});
  }
};

TEST_F(ShapedSweep, TheRidgeLeadsFromArithmeticToBandwidth) {
  const RunData run = loaded();
  const auto shapes = run_shapes(run.environment, 2, 2);
  ASSERT_EQ(shapes.at("").layers, 8);
  ASSERT_EQ(shapes.at("d").layers, 1);
  const theory::ForwardCost one = cost(shapes.at(""), 1), three = cost(shapes.at(""), 3),
                            draft = cost(shapes.at("d"), 1);
  const json sweep = swept(run, SweepAxis::ridge, ideal_device());
  const json row = only_case(sweep);
  ASSERT_TRUE(row["problem"].is_null()) << row.dump();
  EXPECT_NEAR(row["speedup"].front().get<double>(), 2 * one.flops() / (2 * draft.flops() + three.flops()),
              1e-9);
  EXPECT_NEAR(row["speedup"].back().get<double>(), 2 * one.bytes() / (2 * draft.bytes() + three.bytes()),
              1e-9);
  EXPECT_LT(row["speedup"].front().get<double>(), 1);  // not useful when computation is limited
  EXPECT_GT(row["speedup"].back().get<double>(), 1);
  EXPECT_EQ(row["pays"], "above");
  // At the break-even, a device with this ratio gains nothing.
  const double ratio = row["break_even"];
  const json at_ridge = only_case(repriced(
      run, device({{"roofline", {{"bytes_per_second", 3e9}, {"flops_per_second", ratio * 3e9}}}}), {1}));
  EXPECT_GE(at_ridge["speedup"].get<double>(), 1);
  EXPECT_LT(at_ridge["speedup"].get<double>(), 1.002);
}

TEST_F(ShapedSweep, FloorsOfADeviceAreKept) {
  const RunData run = loaded();
  const json floors = {
      {"roofline", {{"bytes_per_second", 1e12}, {"flops_per_second", 1e12}, {"forward_floor_us", 1e6}}}};
  const json row = only_case(swept(run, SweepAxis::ridge, device(floors)));
  // A second for each forward: two of the draft and one of the target.
  EXPECT_NEAR(row["speedup"].back().get<double>(), 2 / 3., 1e-6);
  EXPECT_EQ(row["pays"], "never");
  EXPECT_TRUE(row["break_even"].is_null());
}

TEST_F(ShapedSweep, TheClosedFormFindsTheSameBatch) {
  const RunData run = loaded();
  const json file = {{"roofline", {{"bytes_per_second", 1e9}, {"flops_per_second", 4e10}}}};
  const json row = only_case(swept(run, SweepAxis::batch, device(file)));
  ASSERT_EQ(row["pays"], "below");
  ASSERT_TRUE(row["closed_form"].is_array());
  EXPECT_EQ(row["closed_form"][0], 0);
  // The closed form counts no bytes of drafted rows and the arithmetic of all rows alike, so it is off a
  // little.
  EXPECT_NEAR(row["closed_form"][1].get<double>(), row["break_even"].get<double>(),
              1 + .03 * row["break_even"].get<double>());
  EXPECT_THAT(swept_text(swept(run, SweepAxis::batch, device(file))), HasSubstr("closed form"));
}

}  // namespace
}  // namespace speclab::sweep_test
