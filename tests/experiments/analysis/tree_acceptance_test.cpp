#include "experiments/analysis/trees/tree_acceptance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/metrics/summary.h"
#include "tests/experiments/metrics/hand_made_run.h"
#include "tests/experiments/metrics/tree_steps.h"

namespace speclab::tree_acceptance_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;

TEST(RankCounts, CountsTheChildrenOfReachedNodes) {
  RankCounts counts;
  EXPECT_TRUE(counts.empty());
  counts.add(tree_step({2, 5}));
  counts.add(tree_step({}));
  StepRecord cut = tree_step({1, 3});  // the text ends after the first accepted token
  cut.accepted = cut.emitted = 1;
  counts.add(cut);
  const auto& found = counts.counts();
  ASSERT_EQ(found.size(), 2u);
  ASSERT_EQ(found[0].size(), 2u);
  ASSERT_EQ(found[1].size(), 2u);
  for (const RankCounts::Count& count : found[0]) {
    EXPECT_EQ(count.reached, 3);
    EXPECT_EQ(count.accepted, 1);
  }
  EXPECT_EQ(found[1][0].reached, 1);
  EXPECT_EQ(found[1][0].accepted, 1);
  EXPECT_EQ(found[1][1].reached, 1);
  EXPECT_EQ(found[1][1].accepted, 0);
  EXPECT_THAT(counts.by_rank().by_depth(), ElementsAre(ElementsAre(.5, .25)));
  EXPECT_FALSE(counts.empty());
  const RankCounts same = counts;
  counts.add(same);
  counts.subtract(same);
  EXPECT_EQ(counts.counts()[0][1].reached, 3);
  counts.subtract(same);
  EXPECT_TRUE(counts.empty());
}

TEST(RankCounts, FewNodesAtADepthTakeTheNumberOfAllDepths) {
  RankCounts counts;
  for (int i = 0; i < 49; ++i) counts.add(tree_step({2, 5}));
  EXPECT_THAT(counts.by_depth().by_depth(), ElementsAre(ElementsAre(.5, .5), ElementsAre(.5, .5)));
  counts.add(tree_step({2, 5}));
  EXPECT_THAT(counts.by_depth().by_depth(), ElementsAre(ElementsAre(0, 1), ElementsAre(1, 0)));
}

using TreePredictions = Record;

TEST_F(TreePredictions, AreMadeFromTheOtherPrompts) {
  const auto run = write_run("a", 1'000'000);
  rewrite(run / "cases" / "spec.jsonl", [](LineRecord& line) {
    if (line.prompt == "2") line.turns[0].steps.assign(6, tree_step({}));
    else line.turns[0].steps = {tree_step({2, 5}), tree_step({}), tree_step({1})};
  });
  const json predictions = summarise_run(run)["cases"][1]["predictions"];
  EXPECT_FALSE(predictions.contains("leviathan_eq_1"));
  EXPECT_FALSE(predictions.contains("tree_speedup"));  // there is no calibration
  // Prompts 0 and 1: p = (2/11, 1/11), so F = 1 + 3/11 + 9/121. Prompt 2: p = (.4, .2), so F = 1.96.
  const double value = (6 * (1 + 3. / 11 + 9. / 121) + 6 * 1.96) / 12;
  for (const char* name : {"tree_by_rank", "tree_by_rank_and_depth"}) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(predictions.contains(name));
    EXPECT_NEAR(predictions[name]["value"].get<double>(), value, 1e-12);
    EXPECT_NEAR(predictions[name]["measured"].get<double>(), 1.5, 1e-12);
    EXPECT_NEAR(predictions[name]["error"].get<double>(), value / 1.5 - 1, 1e-12);
    EXPECT_EQ(predictions[name]["kind"], "prediction");
    EXPECT_EQ(predictions[name]["quantity"], "tau");
  }
}

TEST_F(TreePredictions, WithACalibrationAlsoOfTheSpeedup) {
  const auto run = write_run("a", 1'000'000);
  rewrite(run / "cases" / "spec.jsonl",
          [](LineRecord& line) { line.turns[0].steps = {tree_step({2, 5}), tree_step({}), tree_step({1})}; });
  // Forwards of 1 and 7 rows take 1 and 1.3 ms, one of the draft 0.1 ms, drafting 6 tokens 0.3 ms, judging
  // 0.02 ms and .01 ms for each emitted token, everything else 0.05 ms.
  const auto step = [](int drafted, int accepted, double draft, double accept, double other) {
    return json{{"drafted", drafted},
                {"accepted", accepted},
                {"ns", {{"draft", draft}, {"accept", accept}, {"other", other}, {"step", 1}}}};
  };
  json round = calibration_round(1e6);
  round["t_n_ns"] = {{"1", 1e6}, {"7", 1.3e6}};
  round["cases"] = {{"autoregressive", {step(0, 0, 0, 2e4, 3e4)}},
                    {"spec", {step(6, 0, 3e5, 3e4, 5e4), step(6, 2, 3e5, 5e4, 5e4)}}};
  JsonLinesWriter(run / "calibration.jsonl").append(round);
  const json predictions = summarise_run(run)["cases"][1]["predictions"];
  const double tau = predictions.at("tree_by_rank_and_depth")["value"];
  EXPECT_GT(tau, 1.5);
  EXPECT_NEAR(predictions.at("tree_speedup")["value"].get<double>(), tau / (1.3 + 2 * .1), 1e-9);
  EXPECT_NEAR(predictions.at("tree_measured_costs")["value"].get<double>(),
              tau * 1.05 / (.3 + 1.3 + .02 + .01 * tau + .05), 1e-9);
  EXPECT_EQ(predictions["tree_measured_costs"]["quantity"], "speedup");
}

TEST_F(TreePredictions, NeedATreeAndTwoPrompts) {
  const auto run = write_run("a", 1'000'000);
  EXPECT_FALSE(summarise_run(run)["cases"][1]["predictions"].contains("tree_by_rank"));
  rewrite(run / "cases" / "spec.jsonl",
          [](LineRecord& line) { line.turns[0].steps = {tree_step({2, 5}), tree_step({}), tree_step({1})}; });
  const auto data = load_run(run).cases[1];
  EXPECT_EQ(tree_predictions(*data).size(), 2u);
  EXPECT_TRUE(tree_predictions(*data->of_prompt("0")).empty());
}

}  // namespace
}  // namespace speclab::tree_acceptance_test
