#include "core/decoding/budget/draft_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace speclab::draft_budget_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

DraftBudget budget_at(std::vector<double> target_ns) {
  return DraftBudget(std::make_shared<const StepCosts>(StepCosts{std::move(target_ns)}));
}

/// A chain of copies after the pending token 0.
Draft chain(const std::vector<Token>& tokens, int evidence = 0) {
  Draft draft;
  draft.reset(0);
  int node = 0;
  for (const Token token : tokens) node = draft.add(token, node);
  draft.evidence = evidence;
  draft.source = "copies";
  return draft;
}

std::vector<Token> kept(DraftBudget& budget, Draft draft) {
  budget.limit(draft);
  const TokenSpan tokens = draft.tree.tokens();
  return {tokens.begin() + 1, tokens.end()};
}

TEST(StepCosts, GoOnWithTheSlopeOfTheSecondHalf) {
  const StepCosts costs{{10, 11, 20, 30}};
  EXPECT_DOUBLE_EQ(costs.target(1), 10);
  EXPECT_DOUBLE_EQ(costs.target(4), 30);
  EXPECT_DOUBLE_EQ(costs.target(6), 49);
  EXPECT_DOUBLE_EQ((StepCosts{{1, 3}}.target(4)), 7);
  EXPECT_DOUBLE_EQ(StepCosts{{7}}.target(100), 7);
}

TEST(DraftBudget, KeepsEverythingWhereRowsCostNothing) {
  DraftBudget budget = budget_at({1});
  EXPECT_THAT(kept(budget, chain({5, 6, 7})), ElementsAre(5, 6, 7));
}

TEST(DraftBudget, LearnsFromTokensThatItDidNotVerify) {
  DraftBudget budget = budget_at({10, 14, 18, 22, 26});
  for (int step = 0; step < 60; ++step) {
    kept(budget, chain({5, 6, 7}));
    const Token wrong[] = {9};
    budget.observe(wrong);
  }
  EXPECT_THAT(kept(budget, chain({5, 6, 7})), IsEmpty());
  for (int step = 0; step < 60; ++step) {
    kept(budget, chain({5, 6, 7}));
    const Token right[] = {5, 6, 7};
    budget.observe(right);
  }
  EXPECT_THAT(kept(budget, chain({5, 6, 7})), ElementsAre(5, 6, 7));
  budget.begin();
  DraftBudget fresh = budget_at({10, 14, 18, 22, 26});
  EXPECT_EQ(kept(budget, chain({5, 6, 7})), kept(fresh, chain({5, 6, 7}))) << "a sequence begins anew";
}

TEST(DraftBudget, TellsGoodEvidenceFromBad) {
  DraftBudget budget = budget_at({10, 15, 20, 25});
  for (int step = 0; step < 100; ++step) {
    const int evidence = 1 + step % 2 * 4;
    kept(budget, chain({5}, evidence));
    const Token emitted[] = {evidence > 1 ? 5 : 9};
    budget.observe(emitted);
  }
  EXPECT_THAT(kept(budget, chain({5}, 1)), IsEmpty());
  EXPECT_THAT(kept(budget, chain({5}, 5)), ElementsAre(5));
}

/// The P(accepted) that a new budget assumes for each node before it has seen anything.
std::vector<double> first_guesses(const TokenTree& tree) {
  std::vector<double> out{1};
  std::map<int, int> ranks;
  for (int node = 1; node < tree.size(); ++node) {
    const int parent = tree.parent(node), rank = std::min(ranks[parent]++, 3);
    out.push_back(out[static_cast<std::size_t>(parent)] * (parent == 0 ? .5 : .75) / (1 << rank));
  }
  return out;
}

TEST(DraftBudget, NoPartOfADraftGivesMoreTokensPerTime) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    Draft draft;
    draft.reset(0);
    const int size = 2 + static_cast<int>(random() % 8);
    for (int node = 1; node < size; ++node) draft.add(100 + node, static_cast<int>(random() % node));
    std::vector<double> target_ns{10};
    while (static_cast<int>(target_ns.size()) < size)
      target_ns.push_back(target_ns.back() + static_cast<double>(random() % 40) / 10);
    const StepCosts costs{target_ns};
    const std::vector<double> guess = first_guesses(draft.tree);
    double best = 0;
    for (unsigned set = 0; set < 1u << (size - 1); ++set) {
      double tokens = 1;
      bool closed = true;
      int rows = 1;
      for (int node = 1; node < size; ++node) {
        if (!(set >> (node - 1) & 1)) continue;
        const int parent = draft.tree.parent(node);
        closed = closed && (parent == 0 || (set >> (parent - 1) & 1));
        tokens += guess[static_cast<std::size_t>(node)];
        ++rows;
      }
      if (closed) best = std::max(best, tokens / costs.target(rows));
    }
    DraftBudget budget = budget_at(target_ns);
    Draft limited = draft;
    budget.limit(limited);
    double tokens = 1;
    for (int node = 1; node < limited.tree.size(); ++node)
      tokens += guess[static_cast<std::size_t>(limited.tree.token(node) - 100)];
    EXPECT_NEAR(tokens / costs.target(limited.tree.size()), best, 1e-12) << trial;
  }
}

TEST(Draft, KeepRenumbersNodesAndTheirSources) {
  Draft draft = chain({5, 6, 7});
  draft.add(8, 0, Draft::kOneHot, .25f);
  draft.add(9, 4, Draft::kOneHot, .5f);
  draft.contributions = {{1, "chain"}, {4, "copies"}};
  draft.copied_too = {2, 4};
  const char keep[] = {1, 1, 0, 0, 1, 1};
  draft.keep(keep);
  EXPECT_THAT(std::vector<Token>(draft.tree.tokens().begin(), draft.tree.tokens().end()),
              ElementsAre(0, 5, 8, 9));
  EXPECT_THAT(std::vector<int>(draft.tree.parents().begin(), draft.tree.parents().end()),
              ElementsAre(-1, 0, 0, 2));
  EXPECT_THAT(draft.confidence, ElementsAre(-1, -1, .25f, .5f));
  ASSERT_EQ(draft.contributions.size(), 2u);
  EXPECT_EQ(draft.contributions[1].first, 2);
  EXPECT_THAT(draft.copied_too, ElementsAre(2)) << "node 2 is gone, node 4 is now node 2";
  const char none[] = {1, 0, 0, 0};
  draft.keep(none);
  EXPECT_EQ(draft.tree.size(), 1);
  EXPECT_EQ(draft.source, "");
  EXPECT_TRUE(draft.contributions.empty());
}

}  // namespace
}  // namespace speclab::draft_budget_test
