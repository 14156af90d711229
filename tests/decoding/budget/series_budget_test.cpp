#include "core/decoding/budget/series_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

namespace speclab::series_budget_test {
namespace {

/// Chains of two sources for a target whose t(n) is this.
struct Series {
  StepCosts target;
  std::vector<int> most{4, 4};
  std::vector<double> token_ns{2, 0};
  SeriesBudget budget{most};

  int choose(int evidence = SeriesBudget::kEvidence - 1, int limit = 100) {
    return budget.choose({.verifier = &target, .limit = limit, .token_ns = token_ns, .evidence = evidence});
  }
  /// Steps in which a token of each source is accepted with this probability.
  std::array<int, 2> run(std::array<double, 2> acceptance, int steps, int evidence = 3) {
    std::mt19937 random(5);
    std::array<int, 2> handed{};
    for (int step = 0; step < steps; ++step) {
      choose(evidence);
      bool more = true, first = true;
      for (int source = 0; source < 2; ++source) {
        handed[static_cast<std::size_t>(source)] += budget.tokens(source);
        for (int i = 0; more && i < budget.tokens(source); ++i, first = false) {
          more = static_cast<double>(random() % 1000) < 1000 * acceptance[static_cast<std::size_t>(source)];
          budget.verified(source, first, more);
        }
      }
    }
    return handed;
  }
};

TEST(SeriesBudget, TakesEverythingWhereItCostsNothing) {
  Series series{.target = {.target_ns = {1}}, .token_ns = {1e-9, 0}};
  EXPECT_EQ(series.choose(), 8);
  EXPECT_EQ(series.budget.tokens(0), 4);
  EXPECT_EQ(series.budget.tokens(1), 4);
  EXPECT_EQ(series.choose(3, 6), 6) << "the limit of the step";
  EXPECT_EQ(series.choose(3, 0), 0);
}

TEST(SeriesBudget, TakesNothingWhereRowsAreDear) {
  Series series{.target = {.target_ns = {1, 100}}};
  EXPECT_EQ(series.run({1, 1}, 50), (std::array<int, 2>{0, 0}));
}

TEST(SeriesBudget, LeavesOutASourceThatIsNotWorthItsTime) {
  // A token of the first source takes as long as one of the target.
  Series slow{.target = {.target_ns = {10, 10.5, 11}}, .token_ns = {10, 0}};
  const auto handed = slow.run({.9, .6}, 400);
  EXPECT_LT(handed[0], 60) << "trials only";
  EXPECT_GT(handed[1], 1000);
  Series wrong{.target = {.target_ns = {10, 10.5, 11}}};
  const auto of_wrong = wrong.run({.05, .9}, 400);
  EXPECT_LT(of_wrong[0], of_wrong[1] / 5);
  Series right{.target = {.target_ns = {10, 12, 14}}};
  const auto of_right = right.run({.9, .1}, 400);
  EXPECT_GT(of_right[0], 1000);
  EXPECT_LT(of_right[1], of_right[0] / 4);
}

TEST(SeriesBudget, ASourceThatWasLeftOutIsTriedAgain) {
  Series series{.target = {.target_ns = {10, 12, 14}}};
  series.run({.02, .02}, 300);
  const auto before = series.run({.02, .02}, 300);
  EXPECT_LT(before[0], 150);
  const auto after = series.run({.95, .02}, 2000);
  EXPECT_GT(after[0], 1000) << "its tokens have become right";
  series.budget.begin();
  Series fresh{.target = {.target_ns = {10, 12, 14}}};
  EXPECT_EQ(series.choose(), fresh.choose()) << "a sequence begins anew";
}

TEST(SeriesBudget, CopiesNeedEvidenceToComeFirst) {
  Series series{.target = {.target_ns = {10, 12, 14}}, .token_ns = {50, 0}};
  EXPECT_EQ(series.choose(0), 0) << "the first source is too slow, and there is nothing to copy";
  EXPECT_GT(series.choose(2), 0);
  // Bad copies after a short match do not spoil the estimate of those after a long one.
  series.run({0, .95}, 200, 3);
  series.run({0, .02}, 200, 1);
  int with_long = 0, with_short = 0;
  for (int step = 0; step < 20; ++step) {
    with_long += series.choose(3) > 0;
    with_short += series.choose(1) > 0;
  }
  EXPECT_EQ(with_long, 20);
  EXPECT_LT(with_short, 10);
}

/// The best rate of all sets of sources and lengths, by brute force, with the first guess of acceptance.
TEST(SeriesBudget, NoOtherChainGivesMoreTokensPerTime) {
  std::mt19937 random(7);
  int exact = 0;
  const auto tenths = [&](unsigned below) { return static_cast<double>(random() % below) / 10; };
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int> most;
    std::vector<double> token_ns;
    const int sources = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < sources; ++i)
      most.push_back(static_cast<int>(random() % 4)), token_ns.push_back(tenths(40));
    StepCosts target{.target_ns = {10}};
    for (int n = 2; n < 16; ++n) target.target_ns.push_back(target.target_ns.back() + tenths(30));
    SeriesBudget budget(most);
    double best = 1 / target.target(2);
    for (unsigned set = 1; set < 1u << sources; ++set) {
      double tokens = 1, reached = 1, ns = 0;
      int length = 0;
      for (int source = 0; source < sources; ++source) {
        for (int i = 0; (set >> source & 1) != 0 && i < most[static_cast<std::size_t>(source)]; ++i) {
          tokens += reached *= .6;
          ns += token_ns[static_cast<std::size_t>(source)];
          best = std::max(best, tokens / (target.target(2 + ++length) + ns));
        }
      }
    }
    // A step may be a trial, which takes another chain. One that loses less than the share of trials may be
    // taken in every step.
    double own = 0;
    for (int step = 0; step < 4; ++step) {
      const int chosen =
          budget.choose({.verifier = &target, .further_rows = 1, .limit = 100, .token_ns = token_ns});
      double tokens = 1, reached = 1, ns = 0;
      int length = 0;
      for (int source = 0; source < sources; ++source) {
        for (int i = 0; i < budget.tokens(source); ++i) {
          tokens += reached *= .6;
          ns += token_ns[static_cast<std::size_t>(source)];
          ++length;
        }
      }
      EXPECT_EQ(length, chosen);
      own = std::max(own, tokens / (target.target(2 + length) + ns));
    }
    EXPECT_LE(own, best + 1e-12) << trial;
    EXPECT_GE(own, best * (1 - TrialFund::kShare)) << trial;
    exact += own > best - 1e-12;
  }
  EXPECT_GT(exact, 150);
}

TEST(TokenTime, IsTheMeanOfItsObservations) {
  TokenTime time(10);
  EXPECT_DOUBLE_EQ(time.mean(), 10);
  for (int i = 0; i < 300; ++i) time.add(8, 4);
  EXPECT_NEAR(time.mean(), 2, .3);
  time.begin();
  EXPECT_DOUBLE_EQ(time.mean(), 10);
}

}  // namespace
}  // namespace speclab::series_budget_test
