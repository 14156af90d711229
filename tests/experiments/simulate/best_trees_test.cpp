// The search for trees on ranks made by hand.
#include "experiments/simulate/replay/best_trees.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "experiments/simulate/replay/tree_replay.h"

namespace speclab::best_trees_test {
namespace {

RankTrace trace_of(const std::vector<std::vector<int>>& texts, int width) {
  RankTrace trace;
  trace.data = std::make_shared<CaseData>();
  trace.width = width;
  for (const std::vector<int>& ranks : texts) {
    RankedText text;
    text.prompt = std::to_string(trace.texts.size());
    text.ranks = ranks;
    text.confidence.assign(ranks.size(), -1);
    text.depth_limit = static_cast<int>(ranks.size());
    trace.texts.push_back(text);
  }
  return trace;
}

/// A row of the target costs `row`, a forward of the draft .05, in units of a target forward over one row.
theory::TreeCosts costs_of(double row) {
  theory::TreeCosts costs;
  costs.t_ar = 1;
  costs.target = theory::RowTimes({{1, 1.0}, {65, 1 + 64 * row}});
  costs.draft = theory::RowTimes(.05);
  return costs;
}

/// Ranks of 200 tokens: the draft's best token half of the time, its second one a quarter of the time.
std::vector<int> random_ranks(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> ranks;
  for (int i = 0; i < 200; ++i) {
    const unsigned drawn = random() % 8;
    ranks.push_back(drawn < 4 ? 0 : drawn < 6 ? 1 : drawn < 7 ? 2 : -1);
  }
  return ranks;
}

TEST(BestTrees, AcceptanceIsTheShareOfEachRank) {
  RankTrace trace = trace_of({{0, 1, 0, -1}, {2, 0, 0, 0}}, 3);
  trace.texts[1].depth_limit = 2;  // nothing is drafted at its last two positions
  const auto by_depth = acceptance_of_ranks(trace).by_depth();
  ASSERT_EQ(by_depth.size(), 1u);
  ASSERT_EQ(by_depth[0].size(), 3u);
  EXPECT_DOUBLE_EQ(by_depth[0][0], 3. / 6);
  EXPECT_DOUBLE_EQ(by_depth[0][1], 1. / 6);
  EXPECT_DOUBLE_EQ(by_depth[0][2], 1. / 6);
}

TEST(BestTrees, EveryTreeIsReplayedAndTheFastestComesFirst) {
  const RankTrace trace = trace_of({random_ranks(1), random_ranks(2)}, 3);
  const theory::TreeCosts costs = costs_of(.03);
  const std::vector<ReplayedTree> found = search_trees(trace, costs, 10, 4);
  ASSERT_GT(found.size(), 10u);
  EXPECT_TRUE(std::ranges::is_sorted(found, std::greater(), &ReplayedTree::speedup));
  std::set<std::vector<int>> shapes;
  for (const ReplayedTree& one : found) {
    EXPECT_LE(one.tree.nodes(), 10);
    EXPECT_LE(one.tree.depth(), 4);
    EXPECT_GT(*std::ranges::max_element(one.tree.ranks), 1) << "chains belong to another trace";
    const TreeReplayed counts = replay_trees(trace, std::vector<std::size_t>{0, 1}, shape_of(one.tree));
    EXPECT_DOUBLE_EQ(one.tau, counts.tau());
    EXPECT_DOUBLE_EQ(one.speedup, counts.tokens / time_of_trees(counts, costs));
    shapes.insert(one.tree.parents);
  }
  EXPECT_EQ(shapes.size(), found.size()) << "no shape twice";
}

TEST(BestTrees, FreeRowsGoToLargeTreesAndDearRowsToSmallOnes) {
  const RankTrace trace = trace_of({random_ranks(3)}, 3);
  EXPECT_GT(search_trees(trace, costs_of(0), 16, 4).front().tree.nodes(), 8);
  EXPECT_EQ(search_trees(trace, costs_of(1), 16, 4).front().tree.nodes(), 3)
      << "the smallest tree that branches";
}

TEST(BestTrees, TheSecondTokenSavesAStep) {
  // Every other token is the draft's second one. Two children accept each of them; a step emits two tokens.
  const RankTrace trace = trace_of({{0, 1, 0, 1, 0, 1, 0, 1}}, 2);
  const std::vector<ReplayedTree> found = search_trees(trace, costs_of(.01), 3, 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].tree.parents, (std::vector<int>{0, 0}));
  EXPECT_DOUBLE_EQ(found[0].tau, 2);
  EXPECT_DOUBLE_EQ(found[0].speedup, 2 / (1.02 + .05));
}

TEST(BestTrees, WithoutPositionsOrRoomThereIsNoTree) {
  RankTrace trace = trace_of({{}}, 2);
  EXPECT_TRUE(search_trees(trace, costs_of(.01), 8, 4).empty());
  trace = trace_of({{0, 1, 0}}, 2);
  EXPECT_TRUE(search_trees(trace, costs_of(.01), 1, 4).empty()) << "one row holds the pending token";
  EXPECT_TRUE(search_trees(trace, costs_of(.01), 2, 4).empty()) << "a tree of one token does not branch";
  EXPECT_THROW(search_trees(trace, costs_of(.01), 0, 4), Error);
  EXPECT_THROW(shape_of({}), Error);
}

}  // namespace
}  // namespace speclab::best_trees_test
