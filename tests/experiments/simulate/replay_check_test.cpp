// Replays compared with a run, by hand: which costs price a case, what a calibration has seen, the errors.
#include "experiments/simulate/replay/replay_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/metrics/run_data.h"
#include "experiments/simulate/replay/check_prices.h"
#include "tests/experiments/simulate/priced_run.h"

namespace speclab::replay_check_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReplayBesideARun : public fixtures::PricedRun {
 protected:
  // Steps of 1.6 ms that emit 3, 2 and 1 tokens; autoregressive steps take 1 ms.
  void SetUp() override {
    measured_ = load_run(calibrated_run("measured", 1'600'000, 1e6));
    other_ = load_run(calibrated_run("other", 1'600'000, 2e6));
    auto traced = std::make_shared<CaseData>(*measured_.cases.at(1));
    traced->config["options"]["emit_at_most"] = 1;
    Trace& trace = traces_.emplace_back();
    trace.data = traced;
    for (const std::string& prompt : measured_.cases[1]->prompts) {
      TracedText& text = trace.texts.emplace_back();
      text.prompt = prompt;
      for (const int matching : {2, 0, 0, 1, 0, 0}) {
        TracedDraft& draft = text.drafts.emplace_back();
        draft.confidence = {-1, -1};
        draft.matching = matching;
      }
    }
  }
  json check(const RunData* prices = nullptr) const {
    return replay_check({.sources = {.traces = traces_}, .measured = &measured_, .prices = prices});
  }
  static const json& row_of(const json& out) { return out["cases"].at(0); }
  CaseData& case_of_other() { return *other_.cases.at(1); }

  RunData measured_, other_;
  std::vector<Trace> traces_;
};

TEST_F(ReplayBesideARun, TheCalibrationOfTheRunHasSeenAll) {
  const json out = check();
  ASSERT_EQ(out["cases"].size(), 1u);
  const json& row = row_of(out);
  EXPECT_EQ(row["case"], "spec");
  EXPECT_EQ(row["certainty"], "exact");
  EXPECT_EQ(row["calibrated"], true);
  EXPECT_EQ(row["held_out"], false);
  EXPECT_DOUBLE_EQ(row["tau"], 2);
  EXPECT_DOUBLE_EQ(row["replayed_tau"], 2);
  // A step is calibrated to .2 ms of drafting and t(3) = 1.2 ms.
  EXPECT_NEAR(row["replayed_speedup"].get<double>(), 2 / 1.4, 1e-9);
  EXPECT_NEAR(row["speedup"].get<double>(), 2 / 1.6, 1e-9);
  EXPECT_NEAR(row["error"].get<double>(), 1.6 / 1.4 - 1, 1e-9);
  ASSERT_EQ(row["prompts"].size(), 3u);
  EXPECT_NEAR(row["prompts"][0]["ms"].get<double>(), 4.8, 1e-9);
  EXPECT_NEAR(row["prompts"][0]["replayed_ms"].get<double>(), 4.2, 1e-9);
  EXPECT_EQ(row["prompts"][0]["held_out"], false);
  EXPECT_NEAR(out["prompt_errors"]["median"].get<double>(), .125, 1e-9);
  EXPECT_TRUE(out["uncalibrated_speedup_errors"].is_null());
  EXPECT_TRUE(out["held_out_speedup_errors"].is_null());
  EXPECT_TRUE(out["held_out_prompt_errors"].is_null());
  EXPECT_THAT(replay_check_text(out), HasSubstr("the case"));
}

TEST_F(ReplayBesideARun, AnotherRunPricesTheSameCase) {
  other_.config["prompts"].erase(0);  // it has not seen the prompt 0
  const json out = check(&other_);
  const json& row = row_of(out);
  EXPECT_EQ(row["calibrated"], true);
  EXPECT_EQ(row["held_out"], false) << "it has seen the others";
  EXPECT_NEAR(row["replayed_speedup"].get<double>(), 2 * 2 / (.2 + 2.4), 1e-9);
  EXPECT_EQ(row["prompts"][0]["held_out"], true);
  EXPECT_EQ(row["prompts"][1]["held_out"], false);
  EXPECT_EQ(out["held_out_prompt_errors"]["count"], 1);
  EXPECT_NEAR(out["held_out_prompt_errors"]["median"].get<double>(), 7.8 / 4.8 - 1, 1e-9);
}

TEST_F(ReplayBesideARun, ACaseThatWasNotCalibratedHasTheCostsOfItsDrafter) {
  other_.config["prompts"] = json::array();
  case_of_other().config["id"] = "spec/gamma=4";
  other_.calibration["cases"]["spec/gamma=4"] = other_.calibration["cases"]["spec"];
  other_.calibration["cases"].erase("spec");
  const json out = check(&other_);
  EXPECT_EQ(row_of(out)["calibrated"], false);
  EXPECT_EQ(row_of(out)["held_out"], true);
  EXPECT_NEAR(row_of(out)["replayed_speedup"].get<double>(), 2 * 2 / (.2 + 2.4), 1e-9);
  EXPECT_EQ(out["uncalibrated_speedup_errors"]["count"], 1);
  EXPECT_EQ(out["held_out_speedup_errors"]["count"], 1);
  EXPECT_EQ(out["held_out_prompt_errors"]["count"], 3);
  EXPECT_THAT(replay_check_text(out), HasSubstr("that was not calibrated: median error"));
}

TEST_F(ReplayBesideARun, ADrafterThatWasNotCalibratedIsPricedByItsForwards) {
  case_of_other().config["rule"] = "block";  // another drafter
  const CheckPrices prices(&other_);
  const PricedCase found = prices.of(*measured_.cases[1], measured_);
  EXPECT_FALSE(found.calibrated);
  ASSERT_TRUE(found.costs.has_value());
  EXPECT_NEAR(found.costs->draft_token, 1e5, 1e-3) << "6 forwards of one row for 6 drafted tokens";
  EXPECT_NEAR(found.costs->t_ar, 2e6, 1e-3);
  EXPECT_NEAR(found.costs->target.at(3), 2.4e6, 1e-3);
  EXPECT_NEAR(found.costs->other, 0, 1e-3);
  other_.calibration["drafts"].erase("d");
  EXPECT_FALSE(prices.of(*measured_.cases[1], measured_).costs.has_value());
  EXPECT_TRUE(row_of(check(&other_))["replayed_speedup"].is_null());
  other_.calibration = nullptr;
  EXPECT_FALSE(prices.of(*measured_.cases[1], measured_).costs.has_value());
}

TEST_F(ReplayBesideARun, AnExpectationSaysNothingAboutOnePrompt) {
  traces_[0].certainty = Certainty::expectation;
  const json out = check();
  EXPECT_EQ(row_of(out)["certainty"], "expectation");
  EXPECT_TRUE(row_of(out)["error"].is_number());
  EXPECT_TRUE(row_of(out)["prompts"].empty());
  EXPECT_TRUE(out["prompt_errors"].is_null());
}

TEST_F(ReplayBesideARun, PromptsAreSharedByIdAndText) {
  EXPECT_THAT(shared_prompts(measured_, other_), ElementsAre("0", "1", "2")) << "without texts, by the id";
  measured_.config["prompts"][1]["turns"] = {"a"};
  other_.config["prompts"][1]["turns"] = {"b"};
  EXPECT_THAT(shared_prompts(measured_, other_), ElementsAre("0", "2"));
}

}  // namespace
}  // namespace speclab::replay_check_test
