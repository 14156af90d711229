// Which predicted settings are measured, and what the measurement says about them.
#include "experiments/optimize/config_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "core/base/error.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::config_choice_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json setting(const json& case_id, double speedup) {
  return {{"what", "a setting"}, {"case", case_id},
          {"how", "replay"},     {"entry", json::object()},
          {"tau", 1.5},          {"tau_ci95", nullptr},
          {"speedup", speedup},  {"speedup_ci95", {speedup - .1, speedup + .1}}};
}

TEST(SettingsToMeasure, TheFastestComeFirst) {
  EXPECT_THAT(
      settings_to_measure({setting("a", 1.1), setting("b", 1.5), setting("c", 1.3), setting("d", 1.4)}, 3),
      ElementsAre(1u, 3u, 2u));
}

TEST(SettingsToMeasure, NeighboursOfOneCaseStandForEachOther) {
  // 1.499 and 1.49 of "a" differ from 1.5 by less than 1 %, 1.48 by more.
  EXPECT_THAT(settings_to_measure({setting("a", 1.5), setting("a", 1.499), setting("a", 1.49),
                                   setting("a", 1.48), setting("b", 1.2)},
                                  3),
              ElementsAre(0u, 3u, 4u));
}

TEST(SettingsToMeasure, OtherCasesNeverStandForEachOther) {
  EXPECT_THAT(settings_to_measure(
                  {setting("a", 1.5), setting("b", 1.5), setting(nullptr, 1.5), setting(nullptr, 1.499)}, 4),
              ElementsAre(0u, 1u, 2u, 3u));
}

TEST(SettingsToMeasure, ThoseThatWerePassedOverFillTheRest) {
  EXPECT_THAT(settings_to_measure({setting("a", 1.5), setting("a", 1.499), setting("a", 1.498)}, 2),
              ElementsAre(0u, 1u));
  EXPECT_THAT(settings_to_measure({setting("a", 1.5)}, 3), ElementsAre(0u));
  EXPECT_TRUE(settings_to_measure({}, 3).empty());
}

class MeasuredChoice : public fixtures::Record {};

// The hand-made run has a speedup of 2 / 1.6, equal in all prompts and repeats.
TEST_F(MeasuredChoice, PredictionsStandBesideTheMeasurement) {
  const json choice = measured_choice({setting("a", 1.3)}, load_run(write_run("run", 1'600'000)));
  const json& row = choice["settings"][0];
  EXPECT_NEAR(row["measured"]["speedup"].get<double>(), 1.25, 1e-9);
  EXPECT_NEAR(row["error"].get<double>(), 1.3 / 1.25 - 1, 1e-9);
  EXPECT_EQ(row["measured"]["prompts"], 3);
  EXPECT_EQ(row["measured"]["verdict"], "faster");
  EXPECT_EQ(row["speedup"], 1.3) << "the prediction stays";
  EXPECT_EQ(choice["best"], 0);
  EXPECT_THAT(choice_text(choice), HasSubstr("The fastest measured setting is a setting: 1.25"));
}

TEST_F(MeasuredChoice, ASlowSettingIsNotTheBest) {
  const json choice = measured_choice({setting("a", 1.3)}, load_run(write_run("run", 3'000'000)));
  EXPECT_EQ(choice["settings"][0]["measured"]["verdict"], "slower");
  EXPECT_TRUE(choice["best"].is_null());
  EXPECT_THAT(choice_text(choice), HasSubstr("No measured setting is faster"));
}

TEST_F(MeasuredChoice, ACaseThatFailedHasNoSpeed) {
  const auto folder = write_run("run", 1'600'000);
  rewrite(folder / "cases" / "spec.jsonl", [](LineRecord& line) {
    if (line.prompt == "1") line.error = "out of memory";
  });
  const json choice = measured_choice({setting("a", 1.3)}, load_run(folder));
  EXPECT_TRUE(choice["settings"][0]["measured"].is_null());
  EXPECT_TRUE(choice["settings"][0]["error"].is_null());
  EXPECT_TRUE(choice["best"].is_null());
  EXPECT_THAT(choice_text(choice), HasSubstr("failed"));
}

TEST_F(MeasuredChoice, AnotherNumberOfCasesIsRefused) {
  const RunData run = load_run(write_run("run", 1'600'000));
  EXPECT_THROW(measured_choice({setting("a", 1.3), setting("b", 1.2)}, run), Error);
}

}  // namespace
}  // namespace speclab::config_choice_test
