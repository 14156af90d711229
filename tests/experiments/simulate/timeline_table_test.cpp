// Overlapped drafting for a run made by hand: alpha .6, a draft forward of 20 and a target forward of 100 us.
#include "experiments/simulate/timeline_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/simulate/timelines/overlap.h"
#include "tests/experiments/simulate/priced_run.h"

namespace speclab::timeline_table_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TimelineTable : public PricedRun {
 protected:
  json rows(const TimelineWish& wish, const json& file = table_device()) {
    const auto run = calibrated_run("run" + std::to_string(runs_++), 1'600'000, 1e6);
    simulation_ = timelines(load_run(run), device(file), wish);
    return simulation_["timelines"];
  }
  /// t(n) of the device, with the 10 us of a step outside its forwards.
  static theory::RowTimes verify() {
    return theory::RowTimes({{1, 110.0}, {3, 160.0}, {6, 250.0}, {12, 430.0}});
  }
  json simulation_;
  int runs_ = 0;
};

TEST_F(TimelineTable, SerialDraftingComesFirst) {
  const json all = rows({});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["timeline"], "serial");
  EXPECT_NEAR(all[0]["alpha"].get<double>(), .6, 1e-12);
  EXPECT_NEAR(all[0]["c"].get<double>(), .2, 1e-12);
  const int gamma = all[0]["tokens"];
  const double time = simulate::serial_token_time(.6, gamma, 20, verify());
  EXPECT_NEAR(all[0]["us_per_token"].get<double>(), time, 1e-9);
  EXPECT_NEAR(all[0]["speedup"].get<double>(), 110 / time, 1e-12);
  EXPECT_EQ(all[0]["devices"], 1);
}

TEST_F(TimelineTable, OverlapAddsPearlAndAmusd) {
  const json all = rows({.shown = ShownTimelines::overlap});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1]["timeline"], "pearl");
  const double pearl = simulate::pearl_token_time(.6, all[1]["tokens"], 20, verify()),
               amusd = simulate::amusd_token_time(.6, 20, verify());
  EXPECT_NEAR(all[1]["us_per_token"].get<double>(), pearl, 1e-9);
  EXPECT_EQ(all[1]["devices"], 2);
  EXPECT_EQ(all[2]["timeline"], "amusd");
  EXPECT_NEAR(all[2]["us_per_token"].get<double>(), amusd, 1e-9);
  EXPECT_TRUE(all[2]["tokens"].is_null());
  for (const json& row : all)
    EXPECT_NEAR(row["played"].get<double>() / row["speedup"].get<double>(), 1, .02) << row["timeline"];
  EXPECT_THAT(timelines_text(simulation_),
              AllOf(HasSubstr("Simulated on toy"), HasSubstr("pearl, d"), HasSubstr("  target 1"),
                    HasSubstr("x"), HasSubstr("="), Not(HasSubstr("Not simulated"))));
}

TEST_F(TimelineTable, DsiTakesTheServersAndTheLookaheadThatAreWishedFor) {
  const json all = rows({.shown = ShownTimelines::dsi, .lookahead = 1});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1]["devices"], 1 + 6);  // 110 us of verification, 20 us between two of them
  EXPECT_NEAR(all[1]["us_per_token"].get<double>(), .6 * 20 + .4 * 110, 1e-9);
  const json fewer = rows({.shown = ShownTimelines::dsi, .servers = 2, .lookahead = 1});
  EXPECT_EQ(fewer[1]["devices"], 3);
  EXPECT_NEAR(fewer[1]["us_per_token"].get<double>(), simulate::dsi_token_time(.6, 1, 2, 20, 110), 1e-9);
  const json best = rows({.shown = ShownTimelines::dsi, .servers = 2});
  EXPECT_LE(best[1]["us_per_token"].get<double>(), fewer[1]["us_per_token"].get<double>());
}

TEST_F(TimelineTable, SegmentsShowTheBeginningOfTheText) {
  const json all = rows({.shown = ShownTimelines::overlap});
  const json& pearl = all[1];
  ASSERT_FALSE(pearl["segments"].empty());
  EXPECT_NEAR(pearl["horizon_us"].get<double>(), 8 * 110, 1e-9);
  EXPECT_EQ(pearl["segments"][0]["start_us"], 0);
  for (const json& segment : pearl["segments"]) {
    EXPECT_LT(segment["start_us"].get<double>(), 880);
    EXPECT_LE(segment["end_us"].get<double>(), 880);
  }
}

TEST_F(TimelineTable, ADraftThatIsTooSlowSaysSo) {
  json slow = table_device();
  slow["drafts_us"]["d"] = {{"1", 300}};
  const json all = rows({.shown = ShownTimelines::overlap}, slow);
  EXPECT_THAT(all[0]["problem"].get<std::string>(), HasSubstr("faster than autoregressive"));
  EXPECT_THAT(all[2]["problem"].get<std::string>(), HasSubstr("AMUSD"));
  EXPECT_TRUE(all[2]["speedup"].is_null());
  EXPECT_THAT(timelines_text(simulation_), HasSubstr("Not simulated"));
}

TEST_F(TimelineTable, ARunWithoutChainsIsRefused) {
  const auto path = calibrated_run("run", 1'600'000, 1e6);
  json config = read_json_file(path / "config.json");
  config["cases"][1]["draft"] = nullptr;
  write_json_file(path / "config.json", config);
  EXPECT_THROW(timelines(load_run(path), device(table_device()), {}), Error);
}

}  // namespace
}  // namespace speclab::timeline_table_test
