#include "experiments/analysis/trees/counts_by_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "experiments/metrics/summary.h"
#include "tests/experiments/metrics/hand_made_run.h"
#include "tests/experiments/metrics/tree_steps.h"

namespace speclab::counts_by_kind_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;

TEST(CountsByKind, TheFirstDepthIsThatOfTheKind) {
  CountsByKind counts;
  for (int i = 0; i < 60; ++i) counts.add(0, tree_step({1, 3}));
  for (int i = 0; i < 60; ++i) counts.add(1, tree_step({}));
  for (int i = 0; i < 49; ++i) counts.add(2, tree_step({2}));
  for (int i = 0; i < 11; ++i) counts.add(-1, tree_step({}));
  ASSERT_EQ(counts.kinds(), 3);
  EXPECT_EQ(counts.steps(0), 60);
  EXPECT_EQ(counts.steps(2), 49);
  EXPECT_EQ(counts.all().counts()[0][0].reached, 180) << "steps of unknown kind count for all";
  EXPECT_EQ(counts.of(1).counts()[0][0].accepted, 0);
  // Below node 1 the first child was accepted 60 times of 60. Below node 2 no child was accepted in 49 steps.
  const auto below = ElementsAre(60. / 109, 0);
  EXPECT_THAT(counts.acceptance(0).by_depth(), ElementsAre(ElementsAre(1, 0), below));
  EXPECT_THAT(counts.acceptance(1).by_depth(), ElementsAre(ElementsAre(0, 0), below));
  EXPECT_THAT(counts.acceptance(2).by_depth(), ElementsAre(ElementsAre(60. / 180, 49. / 180), below))
      << "too few steps: those of all kinds";
  EXPECT_THAT(counts.acceptance(3).by_depth(), ElementsAre(ElementsAre(60. / 180, 49. / 180), below));
  CountsByKind same = counts;
  counts.add(same);
  counts.subtract(same);
  EXPECT_EQ(counts.steps(1), 60);
  EXPECT_THAT(counts.acceptance(0).by_depth(), ElementsAre(ElementsAre(1, 0), below));
  counts.subtract(same);
  EXPECT_TRUE(counts.all().empty());
  EXPECT_EQ(counts.steps(0), 0);
}

// One measured depth: it is that of the kind, and the greater depths are those of all kinds.
TEST(CountsByKind, ASingleDepthStandsForTheGreaterOnesOfAllKinds) {
  StepRecord good = tree_step({1}), bad = tree_step({});
  for (StepRecord* step : {&good, &bad}) step->drafted.resize(2);
  good.ended_by = EndedBy::bonus;
  CountsByKind counts;
  for (int i = 0; i < 60; ++i) counts.add(0, good), counts.add(1, bad);
  EXPECT_THAT(counts.acceptance(0).by_depth(), ElementsAre(ElementsAre(1, 0), ElementsAre(.5, 0)));
  EXPECT_THAT(counts.acceptance(1).by_depth(), ElementsAre(ElementsAre(0, 0), ElementsAre(.5, 0)));
}

using TreesOfSteps = Record;

// Half of the steps draft a tree, and all of its first path is accepted. The others draft one token, which is
// rejected. The first child is accepted in half of all steps, but which half is known.
TEST_F(TreesOfSteps, TheirPredictionsKnowTheTreeOfEachStep) {
  const auto run = write_run("a", 1'000'000);
  rewrite(run / "cases" / "spec.jsonl", [](LineRecord& line) {
    StepRecord sure = tree_step({1, 3}), unsure = tree_step({});
    sure.tree_number = 1;
    unsure.tree_number = 0;
    unsure.drafted.resize(1);
    unsure.rows = 2;
    unsure.draft_calls = 1;
    line.turns[0].steps.assign(40, sure);
    line.turns[0].steps.insert(line.turns[0].steps.end(), 40, unsure);
    line.turns[0].tokens.assign(1 + 40 * 3 + 40, 5);
    line.turns[0].row_hashes.assign(line.turns[0].tokens.size(), 9);
  });
  EXPECT_TRUE(chooses_trees(*load_run(run).cases[1]));
  EXPECT_FALSE(chooses_trees(*load_run(run).cases[0]));
  json round = calibration_round(1e6);
  round["t_n_ns"] = {{"1", 1e6}, {"7", 1.3e6}};
  JsonLinesWriter(run / "calibration.jsonl").append(round);
  const json predictions = summarise_run(run)["cases"][1]["predictions"];
  for (const auto& [name, value] : std::map<std::string, double>{
           {"tree_by_rank_and_depth", (2 + 1.5) / 2},  // p = .5 at depth 1 and 1 at depth 2
           {"tree_by_confidence", (3 + 1) / 2.},
           {"tree_speedup", (3 + 1) / (1.3 + 2 * .1 + 1.05 + .1)}}) {
    ASSERT_TRUE(predictions.contains(name)) << name;
    EXPECT_NEAR(predictions[name]["value"].get<double>(), value, 1e-9) << name;
  }
  EXPECT_EQ(predictions["tree_by_confidence"]["measured"], 2.0);
}

}  // namespace
}  // namespace speclab::counts_by_kind_test
