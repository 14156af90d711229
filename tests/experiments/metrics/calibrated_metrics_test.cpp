// The metrics that come from the calibration, with their intervals over its rounds, on hand-made records.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <initializer_list>
#include <string>

#include "experiments/metrics/metrics.h"
#include "experiments/metrics/run_data.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::calibrated_metrics_test {
namespace {

using namespace speclab::fixtures;
using nlohmann::json;

class CalibratedMetrics : public Record {
 protected:
  /// A run with these calibration rounds.
  std::filesystem::path run_with(const std::string& name, std::initializer_list<json> rounds) {
    const auto path = write_run(name, 1'600'000);
    for (const json& round : rounds) JsonLinesWriter(path / "calibration.jsonl").append(round);
    return path;
  }
  static json metrics_of(const std::filesystem::path& path) {
    return compute_metrics(*load_run(path).cases[1],
                           {"c", "t_n", "t_target", "t_draft", "c_by_draft", "tau"});
  }
  static void expect_interval(const json& interval, double lo, double hi) {
    ASSERT_EQ(interval.size(), 2u) << interval;
    EXPECT_NEAR(interval[0].get<double>(), lo, 1e-12);
    EXPECT_NEAR(interval[1].get<double>(), hi, 1e-12);
  }
};

/// A round in which a forward of one row takes 1 ms and a draft forward `draft_ms`.
json round_with_draft(double draft_ms, double wide = 1.2) {
  json round = calibration_round(1e6, wide);
  round["drafts"]["d"] = {{"1", draft_ms * 1e6}, {"2", draft_ms * 1e6}};
  return round;
}

TEST_F(CalibratedMetrics, EqualRoundsHaveIntervalsWithoutWidth) {
  const json m = metrics_of(run_with("equal", {round_with_draft(.1), round_with_draft(.1)}));
  EXPECT_NEAR(m["c"].get<double>(), .1, 1e-12);
  expect_interval(m["c_ci95"], .1, .1);
  expect_interval(m["t_draft_ci95"], .1, .1);
  expect_interval(m["t_target_ci95"], 1, 1);
  expect_interval(m["t_n_ci95"]["1"], 1, 1);
  expect_interval(m["t_n_ci95"]["3"], 1.2, 1.2);
  EXPECT_EQ(m["t_n_ci95"].size(), m["t_n"].size());
}

// Of two rounds, a quarter of the resamples holds only the first one and a quarter only the second one. So
// the ends of a 95 % interval are the values of the two rounds.
TEST_F(CalibratedMetrics, TheIntervalGoesFromOneRoundToTheOther) {
  const json drafts = metrics_of(run_with("drafts", {round_with_draft(.1), round_with_draft(.3)}));
  EXPECT_NEAR(drafts["c"].get<double>(), .2, 1e-12);
  expect_interval(drafts["c_ci95"], .1, .3);
  EXPECT_NEAR(drafts["t_draft"].get<double>(), .2, 1e-12);
  expect_interval(drafts["t_draft_ci95"], .1, .3);
  expect_interval(drafts["t_target_ci95"], 1, 1);
  const json rows = metrics_of(run_with("rows", {round_with_draft(.1, 1.1), round_with_draft(.1, 1.3)}));
  expect_interval(rows["t_n_ci95"]["3"], 1.1, 1.3);
  const double between = rows["t_n"]["3"].get<double>();
  EXPECT_GT(between, 1.1);
  EXPECT_LT(between, 1.3);
}

TEST_F(CalibratedMetrics, ResamplesWithoutASizeDoNotCountForIt) {
  json first = round_with_draft(.1);
  first["t_n_ns"]["5"] = 2e6;
  const json m = metrics_of(run_with("sizes", {first, round_with_draft(.1)}));
  EXPECT_NEAR(m["t_n"]["5"].get<double>(), 2, 1e-12);
  expect_interval(m["t_n_ci95"]["5"], 2, 2);
}

TEST_F(CalibratedMetrics, OneRoundOrAPartOfACaseHasNoIntervals) {
  const json single = metrics_of(run_with("single", {round_with_draft(.1)}));
  const RunData run = load_run(run_with("two", {round_with_draft(.1), round_with_draft(.3)}));
  const json part = compute_metrics(*run.cases[1]->of_category("a"), {"c", "t_n", "t_target", "t_draft"});
  for (const json& m : {single, part}) {
    for (const char* name : {"c", "t_n", "t_target", "t_draft"}) {
      EXPECT_FALSE(m[name].is_null()) << name;
      EXPECT_FALSE(m.contains(std::string(name) + "_ci95")) << name;
    }
  }
  const json none = metrics_of(write_run("none", 1'600'000));
  for (const char* name : {"c", "t_n", "t_target", "t_draft"}) EXPECT_TRUE(none[name].is_null()) << name;
}

TEST_F(CalibratedMetrics, EachDraftOfACaseHasItsInterval) {
  const auto path = run_with("several", {round_with_draft(.1), round_with_draft(.3)});
  json config = read_json_file(path / "config.json");
  config["cases"][1]["drafts"] = {"d", "e"};
  write_json_file(path / "config.json", config);
  const json m = metrics_of(path);
  EXPECT_NEAR(m["c_by_draft"]["d"].get<double>(), .2, 1e-12);
  expect_interval(m["c_by_draft_ci95"]["d"], .1, .3);
  EXPECT_TRUE(m["c_by_draft"].at("e").is_null()) << "it was not calibrated";
  EXPECT_FALSE(m["c_by_draft_ci95"].contains("e"));
}

}  // namespace
}  // namespace speclab::calibrated_metrics_test
