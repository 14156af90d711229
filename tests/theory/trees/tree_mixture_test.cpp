#include "core/theory/tree_mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace speclab::theory::tree_mixture_test {
namespace {

/// All trees with 1 to `most` nodes whose siblings have ranks from 1 to `ranks` without gaps.
std::vector<RankedTree> trees_up_to(int most, int ranks) {
  std::vector<RankedTree> all;
  RankedTree tree;
  std::vector<int> children = {0};
  // Parents in ascending order give each tree once.
  const std::function<void(int)> extend = [&](int first) {
    all.push_back(tree);
    if (tree.nodes() == most) return;
    for (int parent = first; parent < tree.nodes(); ++parent) {
      if (children[static_cast<std::size_t>(parent)] == ranks) continue;
      tree.parents.push_back(parent);
      tree.ranks.push_back(++children[static_cast<std::size_t>(parent)]);
      children.push_back(0);
      extend(parent);
      children.pop_back();
      --children[static_cast<std::size_t>(parent)];
      tree.parents.pop_back();
      tree.ranks.pop_back();
    }
  };
  extend(0);
  return all;
}

/// The largest speed over all combinations of choices.
double fastest_of_all(std::span<const double> weights, std::span<const std::vector<TreeStep>> choices) {
  double best = 0;
  const std::function<void(std::size_t, double, double)> add = [&](std::size_t kind, double tokens,
                                                                   double time) {
    if (kind == choices.size()) {
      best = std::max(best, tokens / time);
      return;
    }
    for (const TreeStep& step : choices[kind])
      add(kind + 1, tokens + weights[kind] * step.tokens, time + weights[kind] * step.time);
  };
  add(0, 0, 0);
  return best;
}

TEST(BestMixture, EqualsBruteForceOnRandomSteps) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> tokens(1, 6), time(.8, 5), weight(0, 1);
  for (int round = 0; round < 300; ++round) {
    const std::size_t kinds = 1 + static_cast<std::size_t>(round) % 4;
    std::vector<double> weights;
    std::vector<std::vector<TreeStep>> choices;
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      weights.push_back(weight(random) + (kind == 0 ? .01 : 0));
      choices.emplace_back();
      for (int i = 0; i < 1 + (round + static_cast<int>(kind)) % 7; ++i)
        choices.back().push_back({tokens(random), time(random)});
    }
    const MixtureChoice found = best_mixture(weights, choices);
    EXPECT_NEAR(found.mean.tokens / found.mean.time, fastest_of_all(weights, choices), 1e-12) << round;
    double sum = 0, all = 0;
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      sum += weights[kind];
      all += weights[kind] * choices[kind][found.chosen[kind]].tokens;
    }
    EXPECT_NEAR(found.mean.tokens, all / sum, 1e-12);
  }
}

// The fastest choice of each kind alone is not the fastest mixture. Alone, the first kind is fastest with its
// long step: 3 / 2.7 > 1. In the mixture, the other steps make 3 tokens per unit of time, and the first kind
// should waste as little time as possible.
TEST(BestMixture, IsNotTheFastestChoiceOfEachKind) {
  const std::vector<double> weights = {1, 1};
  const std::vector<std::vector<TreeStep>> choices = {{{3, 2.7}, {1, 1}}, {{6, 2}}};
  const MixtureChoice found = best_mixture(weights, choices);
  EXPECT_EQ(found.chosen, (std::vector<std::size_t>{1, 0}));
  EXPECT_NEAR(found.mean.tokens / found.mean.time, 7. / 3, 1e-12);
  EXPECT_LT(9 / 4.7, 7. / 3);
}

// Three kinds whose first children are accepted rarely, often and almost always.
std::vector<StepKind> three_kinds(const std::vector<double>& weights) {
  const std::vector<double> second = {.5, .2, .05};
  return {{weights[0], RankAcceptance({{.2, .15, .1}, second, {.4, .2, .1}})},
          {weights[1], RankAcceptance({{.6, .15, .05}, second, {.4, .2, .1}})},
          {weights[2], RankAcceptance({{.95, .03, .01}, second, {.4, .2, .1}})}};
}

const std::vector<RowTimes>& times() {
  static const std::vector<RowTimes> all = {
      RowTimes(std::map<int, double>{{1, 10}, {4, 12}, {8, 20}, {64, 200}}),
      RowTimes(std::map<int, double>{{1, 10}, {2, 14}, {8, 20}}), RowTimes()};
  return all;
}

// Every combination of trees with up to seven nodes for two kinds, and with up to five nodes for three kinds.
TEST(TreeMixture, EqualsBruteForceOverAllTrees) {
  int with_empty_trees = 0, with_different_trees = 0;
  for (const RowTimes& target : times()) {
    for (const double c : {0., .05, .3}) {
      for (const std::vector<double>& weights :
           {std::vector<double>{.5, 0, .5}, std::vector<double>{.7, .2, .1},
            std::vector<double>{.1, .6, .3}}) {
        std::vector<StepKind> kinds = three_kinds(weights);
        const bool two = weights[1] == 0;
        if (two) kinds.erase(kinds.begin() + 1);
        const int most = two ? 7 : 5;
        const StepTime time = forwards_time(target, c);
        std::vector<double> of_kinds;
        std::vector<std::vector<TreeStep>> choices;
        for (const StepKind& kind : kinds) {
          of_kinds.push_back(kind.weight);
          choices.emplace_back();
          for (const RankedTree& tree : trees_up_to(most, 3)) {
            const double tokens = tree_expected_tokens(tree, kind.acceptance);
            choices.back().push_back({tokens, target.ratio(tree.nodes()) + std::max(1, tree.depth()) * c});
          }
        }
        EXPECT_GT(choices[0].size(), two ? 100u : 20u);
        const TreeMixture found = best_tree_mixture(kinds, time, most, most);
        EXPECT_NEAR(found.speedup(), fastest_of_all(of_kinds, choices), 1e-12) << c;
        ASSERT_EQ(found.trees.size(), kinds.size());
        const TreeStep again = mixture_step(kinds, found.trees, time);
        EXPECT_NEAR(again.tokens, found.mean.tokens, 1e-12);
        EXPECT_NEAR(again.time, found.mean.time, 1e-12);
        for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
          EXPECT_LE(found.trees[kind].nodes(), most);
          EXPECT_NEAR(found.tokens[kind], tree_expected_tokens(found.trees[kind], kinds[kind].acceptance),
                      1e-12);
        }
        with_empty_trees += found.trees.front().parents.empty() && !found.trees.back().parents.empty();
        with_different_trees += found.trees.front().parents != found.trees.back().parents;
        // No single tree for all kinds is faster.
        for (const RankedTree& tree : trees_up_to(most, 3)) {
          const std::vector<RankedTree> everywhere(kinds.size(), tree);
          const TreeStep step = mixture_step(kinds, everywhere, time);
          EXPECT_LE(step.tokens / step.time, found.speedup() + 1e-12);
        }
      }
    }
  }
  EXPECT_GT(with_empty_trees, 0) << "a kind that drafts nothing";
  EXPECT_GT(with_different_trees, 10);
}

TEST(TreeMixture, OneKindIsTheBestTree) {
  const RankAcceptance p({{.6, .15, .07, .04}, {.5, .2}});
  for (const RowTimes& target : times()) {
    const TreeChoice one = best_tree(p, target, .05, 32, 10);
    const TreeMixture mixture =
        best_tree_mixture(std::vector<StepKind>{{3, p}}, forwards_time(target, .05), 32, 10);
    ASSERT_GT(one.speedup, 1);
    EXPECT_NEAR(mixture.speedup(), one.speedup, 1e-12);
    EXPECT_EQ(mixture.trees.front().parents, one.tree.parents);
  }
}

// To draft nothing costs the forward of the draft model that shows the kind of the step. The same forward
// gives the first level of a tree. So one level is worth it where rows are free, even if a forward of the
// draft model takes twice as long as an autoregressive step.
TEST(TreeMixture, ADraftOfNothingCostsAForwardOfTheDraftModel) {
  const std::vector<StepKind> kinds = {{1, RankAcceptance({{.6, .15, .07, .04}, {.5, .2}})}};
  const TreeMixture level = best_tree_mixture(kinds, forwards_time(RowTimes(), 2), 32, 10);
  EXPECT_EQ(level.trees.front().depth(), 1);
  EXPECT_NEAR(level.speedup(), 1.86 / 3, 1e-12);
  const RowTimes dear(std::map<int, double>{{1, 10}, {2, 40}});  // one drafted token gives 1.6 / (4 + 2)
  const TreeMixture nothing = best_tree_mixture(kinds, forwards_time(dear, 2), 32, 10);
  EXPECT_TRUE(nothing.trees.front().parents.empty());
  EXPECT_NEAR(nothing.speedup(), 1. / 3, 1e-12);
}

// With free rows and a draft of constant cost, the time of all parts is that of the forwards.
TEST(TreeMixture, AllCostsContainTheForwards) {
  const RowTimes target(std::map<int, double>{{1, 10}, {8, 20}});
  const TreeCosts costs{.t_ar = 10, .target = target, .draft = RowTimes(.5)};
  const StepTime all = all_costs_time(costs), forwards = forwards_time(target, .05);
  for (const RankedTree& tree : trees_up_to(6, 3)) EXPECT_NEAR(all(tree, 2), forwards(tree, 2), 1e-12);
  TreeCosts more = costs;
  more.accept_token = 1, more.other_step = 2, more.draft_token = .1;
  const RankedTree pair{.parents = {0, 0}, .ranks = {1, 2}};
  EXPECT_NEAR(all_costs_time(more)(pair, 1.5), forwards(pair, 1.5) + (1.5 + 2 + .2) / 10, 1e-12);
}

TEST(TreeMixture, BadArgumentsThrow) {
  const std::vector<std::vector<TreeStep>> one = {{{1, 1}}}, none = {{}}, slow = {{{1, 0}}},
                                           odd = {{{-1, 1}}};
  EXPECT_NO_THROW(best_mixture(std::vector<double>{1}, one));
  EXPECT_THROW(best_mixture(std::vector<double>{}, {}), Error);
  EXPECT_THROW(best_mixture(std::vector<double>{1, 1}, one), Error);
  EXPECT_THROW(best_mixture(std::vector<double>{0}, one), Error);
  EXPECT_THROW(best_mixture(std::vector<double>{-1}, one), Error);
  EXPECT_THROW(best_mixture(std::vector<double>{1}, none), Error);
  EXPECT_THROW(best_mixture(std::vector<double>{1}, slow), Error);
  EXPECT_THROW(best_mixture(std::vector<double>{1}, odd), Error);
  EXPECT_THROW(forwards_time(RowTimes(), -1), Error);
  EXPECT_THROW(all_costs_time(TreeCosts()), Error);
}

}  // namespace
}  // namespace speclab::theory::tree_mixture_test
