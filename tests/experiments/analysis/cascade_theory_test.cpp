// Predictions of a case whose drafts review each other's chains, from a record made by hand.
#include "experiments/analysis/cascade_theory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/analysis/table.h"
#include "experiments/metrics/summary.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::cascade_theory_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

class CascadePredictions : public Record {
 protected:
  /// A run with the matrix K = (2, k1_copies; 0, 1) of one draft model and copies. `change` may change the
  /// lines of the case.
  template <class Change>
  json entry_of(const std::string& name, const Change& change, json options = json::object(),
                std::int64_t step_ns = 1'600'000, bool calibrated = true) {
    const auto path = write_run(name, step_ns);
    json config = read_json_file(path / "config.json");
    config["cases"][1]["strategy"] = "cascade";
    config["cases"][1]["options"] = {
        {"temperature", 0}, {"budget", "fixed"}, {"k", {2, 0, 0, 1}}, {"max_gram", true}};
    config["cases"][1]["options"].update(options);
    write_json_file(path / "config.json", config);
    rewrite(path / "cases" / "spec.jsonl", [&](LineRecord& line) {
      int number = 0;
      for (StepRecord& step : line.turns[0].steps) {
        step.source = "draft 1";
        step.contributions.clear();
        step.reviews = {{"draft 1", "max_gram", 1, number == 0 ? 1 : 0}};
        step.draft_calls = number++ == 0 ? 1 : 2;
      }
      line.turns[0].draft = passes(5, 6, 60, 60);
      change(line);
    });
    for (int i = 0; calibrated && i < 3; ++i)
      JsonLinesWriter(path / "calibration.jsonl").append(calibration_round(1e6));
    summary_ = summarise_run(path);
    return summary_["cases"][1];
  }
  static double value(const json& entry, const char* name) {
    return entry["predictions"].at(name).at("value").get<double>();
  }
  static bool predicts(const json& entry) { return entry["predictions"].contains("cascade_tau"); }
  json summary_;
};

constexpr auto kUnchanged = [](LineRecord&) {};

// The target tests 5 tokens of draft 1 and accepts 3. Draft 1 tests 3 copies and keeps 1. So a chain of two
// tokens needs a second forward with the probability 2/3. t(3) is 1.2, and c is 0.1.
TEST_F(CascadePredictions, FollowFromTheAcceptanceAtEachPlace) {
  const json entry = entry_of("vertical", kUnchanged);
  const double tau = 1 + .6 + .36, forwards = 1 + 2. / 3;
  EXPECT_NEAR(value(entry, "cascade_tau"), tau, 1e-12);
  EXPECT_NEAR(value(entry, "cascade_forwards"), forwards / tau, 1e-12);
  EXPECT_NEAR(value(entry, "cascade_ewif"), tau / (1 + .1 * forwards), 1e-12);
  EXPECT_NEAR(value(entry, "cascade_measured_t"), tau / (1.2 + .1 * forwards), 1e-12);
  const json& calls = entry["predictions"]["cascade_forwards"];
  EXPECT_EQ(calls["quantity"], "draft_calls");
  EXPECT_NEAR(calls["measured"].get<double>(), 5. / 6, 1e-12);
  EXPECT_NEAR(calls["error"].get<double>(), forwards / tau * 6 / 5 - 1, 1e-12);
  EXPECT_THAT(entry["predictions"]["cascade_ewif"]["assumptions"].get<std::string>(), HasSubstr("t(n) = 1"));
  const Table table = summary_table(summary_);
  ASSERT_THAT(table.header, ::testing::Contains("predicted"));
  EXPECT_THAT(to_text(table), HasSubstr(number_text(value(entry, "cascade_measured_t"))));
}

// The second token of each chain is a copy, so the target has an acceptance for each source.
TEST_F(CascadePredictions, TheTargetAcceptsEachSourceWithItsOwnProbability) {
  const auto copies = [](LineRecord& line) {
    for (StepRecord& step : line.turns[0].steps) {
      step.contributions = {{1, "draft 1"}, {2, "max_gram"}};
      step.reviews.clear();
    }
  };
  const json entry = entry_of("horizontal", copies, {{"k", {1, 1, 0, 0}}});
  const double tau = 1 + 2. / 3 + 2. / 3 * .5;  // draft 1: 2 of 3 accepted; copies: 1 of 2
  EXPECT_NEAR(value(entry, "cascade_tau"), tau, 1e-12);
  EXPECT_NEAR(value(entry, "cascade_ewif"), tau / 1.1, 1e-12);
}

TEST_F(CascadePredictions, DoNotDependOnTheTimesOfTheCase) {
  const json slow = entry_of("slow", kUnchanged, json::object(), 9'000'000);
  const json fast = entry_of("fast", kUnchanged, json::object(), 1'200'000);
  EXPECT_NE(slow["metrics"]["speedup"], fast["metrics"]["speedup"]);
  for (const char* name : {"cascade_tau", "cascade_forwards", "cascade_ewif", "cascade_measured_t"})
    EXPECT_EQ(value(slow, name), value(fast, name)) << name;
}

TEST_F(CascadePredictions, WithoutACalibrationThereIsNoSpeedup) {
  const json entry = entry_of("uncalibrated", kUnchanged, json::object(), 1'600'000, false);
  EXPECT_TRUE(predicts(entry));
  EXPECT_FALSE(entry["predictions"].contains("cascade_ewif"));
}

TEST_F(CascadePredictions, NeedAMatrixThatSaysTheLengthsAndARecordOfReviews) {
  EXPECT_FALSE(predicts(entry_of("auto", kUnchanged, {{"budget", "auto"}})));
  EXPECT_FALSE(predicts(entry_of("older", [](LineRecord& line) {
    for (StepRecord& step : line.turns[0].steps) step.reviews.clear();
  })));
  EXPECT_FALSE(predicts(
      entry_of("unknown", [](LineRecord& line) { line.turns[0].steps[1].source = "something else"; })));
  EXPECT_FALSE(predicts(entry_of("size", kUnchanged, {{"k", {2, 0, 0}}})));
}

}  // namespace
}  // namespace speclab::cascade_theory_test
