#include "core/decoding/budget/union_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

namespace speclab::union_budget_test {
namespace {

std::shared_ptr<const StepCosts> target(std::vector<double> ns) {
  return std::make_shared<const StepCosts>(StepCosts{.target_ns = std::move(ns)});
}

using Sources = std::vector<UnionBudget::Source>;
constexpr int kMany = 127;

/// Steps in which the chains of two sources are right up to random depths. `same`: both are right together.
/// Returns the number of steps in which each source drafted.
std::array<int, 2> drafting_steps(UnionBudget& budget, const Sources& sources,
                                  std::array<double, 2> acceptance, bool same, int steps) {
  std::mt19937 random(9);
  const auto depth = [&](double p) {
    int right = 0;
    while (right < 8 && static_cast<double>(random() % 1000) < 1000 * p) ++right;
    return right;
  };
  std::array<int, 2> drafted_in{};
  for (int step = 0; step < steps; ++step) {
    budget.choose(sources, kMany, kMany);
    std::array<int, 2> drafted{budget.length(0), budget.length(1)}, right{depth(acceptance[0]), 0};
    right[1] = same ? right[0] : depth(acceptance[1]);
    int best = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      right[i] = std::min(right[i], drafted[i]);
      best = std::max(best, right[i]);
      drafted_in[i] += drafted[i] > 0;
    }
    const int nodes = same ? std::max(drafted[0], drafted[1]) : drafted[0] + drafted[1];
    budget.observe(drafted, right, best + 1, nodes);
  }
  return drafted_in;
}

TEST(UnionBudget, DraftsEverythingWhereItCostsNothing) {
  UnionBudget budget(target({1}), 2);
  const Sources sources{{.most = 4, .chains = 2}, {.most = 3}};
  EXPECT_EQ(budget.choose(sources, kMany, kMany), 11);
  EXPECT_EQ(budget.length(0), 4);
  EXPECT_EQ(budget.length(1), 3);
  EXPECT_LE(budget.choose(sources, 6, kMany), 6) << "no more tokens may be drawn";
  EXPECT_EQ(budget.choose(Sources{{.most = 0}, {.most = 0}}, kMany, kMany), 0);
}

TEST(UnionBudget, DraftsNothingWhereRowsAreDear) {
  UnionBudget budget(target({1, 100}), 2);
  const auto steps = drafting_steps(budget, {{.most = 4}, {.most = 4}}, {1, 1}, false, 50);
  EXPECT_EQ(steps, (std::array<int, 2>{0, 0}));
}

// The second source proposes the same tokens as the first one. So it is worth nothing beside the first, and
// the cheaper of the two drafts alone.
TEST(UnionBudget, OneOfTwoSourcesThatSayTheSameDrafts) {
  UnionBudget budget(target({10, 10.5, 11}), 2);
  const Sources sources{{.most = 4, .first_ns = 1, .next_ns = 1}, {.most = 4, .first_ns = 2, .next_ns = 2}};
  drafting_steps(budget, sources, {.7, 0}, true, 200);
  const auto same = drafting_steps(budget, sources, {.7, 0}, true, 400);
  EXPECT_GT(same[0], 380);
  EXPECT_LT(same[1], 100) << "trials only";
  // Sources that are right independently of each other draft together.
  const auto others = drafting_steps(budget, sources, {.5, .7}, false, 1500);
  EXPECT_GT(others[1], 1000);
}

TEST(UnionBudget, ASourceThatIsTooSlowIsOnlyTried) {
  UnionBudget budget(target({10, 10.5, 11}), 2);
  const Sources sources{{.most = 4, .first_ns = 1, .next_ns = 1}, {.most = 4, .first_ns = 15, .next_ns = 15}};
  const auto steps = drafting_steps(budget, sources, {.7, .7}, false, 400);
  EXPECT_GT(steps[0], 380);
  EXPECT_LT(steps[1], 30);
  budget.begin();
  UnionBudget fresh(target({10, 10.5, 11}), 2);
  EXPECT_EQ(budget.choose(sources, kMany, kMany), fresh.choose(sources, kMany, kMany));
}

TEST(UnionBudget, GoodEvidenceIsLearnedSeparately) {
  UnionBudget budget(target({10, 12, 14}), 1);
  const Sources sources{{.most = 3}};
  for (int step = 0; step < 400; ++step) {
    const int evidence = 1 + step % 2;
    budget.choose(sources, kMany, kMany, evidence);
    const int drafted = budget.length(0), right = evidence == 2 ? drafted : 0;
    budget.observe(std::span(&drafted, 1), std::span(&right, 1), right + 1, drafted);
  }
  int with_good = 0, with_bad = 0;
  for (int step = 0; step < 20; ++step) {
    with_good += budget.choose(sources, kMany, kMany, 2) > 0;
    with_bad += budget.choose(sources, kMany, kMany, 1) > 0;
  }
  EXPECT_EQ(with_good, 20);
  EXPECT_LT(with_bad, 8);
}

// Six sources have too many combinations of lengths to compare all of them.
TEST(UnionBudget, ManySourcesAreSearchedStepByStep) {
  const Sources six(6, {.most = 4});
  UnionBudget free(target({1}), 6);
  EXPECT_EQ(free.choose(six, kMany, kMany), 24);
  EXPECT_LE(free.choose(six, 7, kMany), 7) << "no more tokens may be drawn";
  EXPECT_GT(free.choose(six, 7, kMany), 0);
  UnionBudget slow(target({10, 10.1, 10.2, 10.3, 10.4}), 6);
  Sources one_is_fast(6, {.most = 4, .first_ns = 100, .next_ns = 100});
  one_is_fast[3] = {.most = 4};
  EXPECT_EQ(slow.choose(one_is_fast, kMany, kMany), 4);
  EXPECT_EQ(slow.length(3), 4);
}

// One source: P is the first guess to the power of the depth, so the best length is known.
TEST(UnionBudget, OneSourceGetsTheLengthOfMostTokensPerTime) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> ns{10};
    for (int n = 2; n < 8; ++n) ns.push_back(ns.back() + static_cast<double>(random() % 30) / 10);
    const auto table = target(ns);
    const double draft_ns = static_cast<double>(random() % 30) / 10;
    UnionBudget budget(table, 1);
    const int most = 4, chosen = budget.choose(
                            Sources{{.most = most, .first_ns = draft_ns, .next_ns = draft_ns}}, kMany, kMany);
    const auto rate = [&](int length) {
      double tokens = 1, reached = 1;
      for (int i = 0; i < length; ++i) tokens += reached *= .6;
      return tokens / (table->target(1 + length) + length * draft_ns);
    };
    double best = 0;
    for (int length = 0; length <= most; ++length) best = std::max(best, rate(length));
    EXPECT_NEAR(rate(chosen), best, 1e-12) << trial;
  }
}

}  // namespace
}  // namespace speclab::union_budget_test
