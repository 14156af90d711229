#include "experiments/analysis/trees/tree_costs.h"

#include <gtest/gtest.h>

#include "tests/experiments/metrics/hand_made_run.h"
#include "tests/experiments/metrics/tree_steps.h"

namespace speclab::tree_costs_test {
namespace {

using namespace speclab::fixtures;

class TreeCosts : public Record {
 protected:
  /// A run whose case "spec" drafts trees of widths <2, 2>, with these times of draft forwards by rows.
  RunData run_of(const json& draft_ns) {
    const auto run = write_run("a", 1'000'000);
    rewrite(run / "cases" / "spec.jsonl", [](LineRecord& line) {
      line.turns[0].steps = {tree_step({2, 5}), tree_step({}), tree_step({1})};
      line.turns[0].steps[1].drafted.resize(2);  // cut by the end of the text
    });
    const auto step = [](int drafted, double draft, double other) {
      return json{{"drafted", drafted},
                  {"accepted", 0},
                  {"ns", {{"draft", draft}, {"accept", 2e4}, {"other", other}, {"step", 1}}}};
    };
    json round = calibration_round(1e6);
    round["drafts"]["d"] = draft_ns;
    round["cases"] = {{"autoregressive", {step(0, 0, 1e4)}}, {"spec", {step(6, 5e5, 6e4)}}};
    JsonLinesWriter(run / "calibration.jsonl").append(round);
    return load_run(run);
  }
};

TEST_F(TreeCosts, ComeFromTheCalibration) {
  const RunData run = run_of({{"1", 1e5}, {"2", 1.4e5}, {"4", 2e5}});
  const CaseData* const cases[] = {run.cases[1].get()};
  const auto costs = calibrated_tree_costs(cases);
  ASSERT_TRUE(costs);
  EXPECT_DOUBLE_EQ(costs->t_ar, 1e6 + 2e4 + 1e4);
  EXPECT_DOUBLE_EQ(costs->target.at(3), 1.2e6);
  EXPECT_DOUBLE_EQ(costs->draft.at(3), 1.7e5);
  // One size of trees: what drafting takes besides forwards of one and of two rows is per token.
  EXPECT_EQ(costs->draft_step, 0);
  EXPECT_NEAR(costs->draft_token, (5e5 - 1e5 - 1.4e5) / 6, 1e-6);
  EXPECT_EQ(costs->accept_step + costs->accept_token, 2e4);
  EXPECT_NEAR(costs->other_step + 6 * costs->other_token, 6e4, 1e-6);
  // So the step of this tree takes what it took.
  const theory::RankedTree tree{.parents = {0, 0, 1, 1, 2, 2}, .ranks = {1, 2, 1, 2, 1, 2}};
  const theory::StepTimes times = theory::tree_step_times(tree, 1, *costs);
  EXPECT_NEAR(times.draft, 5e5, 1e-6);
  EXPECT_NEAR(times.other, 6e4, 1e-6);
  const json shown = to_json(*costs, 4);
  EXPECT_DOUBLE_EQ(shown["draft"]["4"].get<double>(), .2);
  EXPECT_DOUBLE_EQ(shown["t_ar"].get<double>(), 1.03);
}

TEST_F(TreeCosts, NeedDraftForwardsOverTheRowsOfALevel) {
  const RunData run = run_of({{"1", 1e5}, {"2", 1.4e5}});
  const CaseData* const cases[] = {run.cases[1].get()};
  EXPECT_FALSE(calibrated_tree_costs(cases));
}

}  // namespace
}  // namespace speclab::tree_costs_test
