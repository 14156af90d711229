#include "core/decoding/budget/shape_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/base/error.h"
#include "core/decoding/budget/budget_options.h"
#include "core/decoding/budget/draft_switch.h"

namespace speclab::shape_budget_test {
namespace {

std::shared_ptr<const StepCosts> costs(std::vector<double> target_ns, std::vector<double> draft_ns = {}) {
  return std::make_shared<const StepCosts>(StepCosts{std::move(target_ns), std::move(draft_ns)});
}

constexpr ShapeBudget::Settings kCopies{.first_guess = .6, .by_draft_model = false, .trial_steps = 1};

/// Steps in which each drafted token of a chain is accepted with this probability.
int steps_with_a_draft(ShapeBudget& budget, double acceptance, int steps, int* longest = nullptr) {
  std::mt19937 random(3);
  int drafts = 0;
  for (int step = 0; step < steps; ++step) {
    const int drafted = budget.choose(100);
    int accepted = 0;
    while (accepted < drafted && static_cast<double>(random() % 1000) < 1000 * acceptance) ++accepted;
    budget.observe_chain(drafted, accepted);
    drafts += drafted > 0;
    if (longest != nullptr) *longest = std::max(*longest, drafted);
  }
  return drafts;
}

TEST(ShapeBudget, DraftsEverythingWhereDraftsCostNothing) {
  ShapeBudget chain(costs({5}), TreeShape::chain(64), kCopies);
  EXPECT_EQ(chain.choose(100), 64);
  EXPECT_EQ(chain.choose(7), 7) << "the limit of the step";
  EXPECT_EQ(chain.choose(0), 0);
  const int widths[] = {3, 2, 1};
  ShapeBudget tree(costs({5}), TreeShape::of_widths(widths, "test"), kCopies);
  EXPECT_EQ(tree.choose(100), 15);
  EXPECT_EQ(tree.choose(1), 3);
  EXPECT_EQ(tree.children(0), 3);
  EXPECT_EQ(tree.children(1), 0);
}

TEST(ShapeBudget, DraftsNothingWhereRowsAreDear) {
  ShapeBudget budget(costs({1, 100}), TreeShape::chain(4), kCopies);
  EXPECT_EQ(steps_with_a_draft(budget, 1, 200), 0);
  ShapeBudget slow_draft(costs({10, 10.1}, {20}), TreeShape::chain(4), {});
  EXPECT_EQ(steps_with_a_draft(slow_draft, 1, 10), 0);
}

TEST(ShapeBudget, FollowsTheAcceptance) {
  // A chain of n tokens takes 10 + 2.5 n. By Leviathan et al. 2023 (Theorem 3.8) one token is best at .4, and
  // long drafts are best at .95.
  const auto table = costs({10, 11, 12, 13, 14, 15, 16, 17, 18}, {1.5});
  ShapeBudget good(table, TreeShape::chain(8), {}), bad(table, TreeShape::chain(8), {}),
      hopeless(table, TreeShape::chain(8), {});
  steps_with_a_draft(good, .95, 200);
  EXPECT_GE(good.choose(8), 4);
  steps_with_a_draft(bad, .4, 200);
  EXPECT_LE(bad.choose(8), 2);
  EXPECT_LT(steps_with_a_draft(hopeless, .05, 1000), 150);
  EXPECT_GT(steps_with_a_draft(hopeless, .95, 300), 200) << "trials find out that the text has changed";
  hopeless.begin();
  ShapeBudget fresh(table, TreeShape::chain(8), {});
  EXPECT_EQ(hopeless.choose(8), fresh.choose(8)) << "a sequence begins anew";
}

TEST(ShapeBudget, TrialsTakeAFewPercentOfTheTime) {
  for (const double second : {12.0, 20.0, 60.0}) {
    const auto table = costs({10, second}, {1.5});
    ShapeBudget budget(table, TreeShape::chain(3), {});
    steps_with_a_draft(budget, 0, 100);  // it has learned that nothing is accepted
    double lost = 0;
    constexpr int kSteps = 20000;
    for (int step = 0; step < kSteps; ++step) {
      const int drafted = budget.choose(3);
      budget.observe_chain(drafted, 0);
      if (drafted > 0) lost += table->target(1 + drafted) + drafted * 1.5 - 10;
    }
    EXPECT_GT(lost, 0) << second << ": nothing was tried";
    EXPECT_LT(lost, .025 * 10 * kSteps) << second;
  }
}

TEST(ShapeBudget, ATrialMayTakeSeveralSteps) {
  ShapeBudget budget(costs({10, 13}), TreeShape::chain(1), {.by_draft_model = false, .trial_steps = 3});
  std::vector<int> drafts;
  for (int step = 0; step < 600; ++step) {
    drafts.push_back(budget.choose(1));
    budget.observe_chain(drafts.back(), 0);
  }
  int longest = 0, alone = 0;
  for (std::size_t i = 100, length = 0; i < drafts.size(); ++i) {
    if (drafts[i] > 0) ++length;
    else if (length > 0)
      alone += length != 3, longest = std::max(longest, static_cast<int>(length)), length = 0;
  }
  EXPECT_EQ(longest, 3);
  EXPECT_LE(alone, 1) << "the first one may have begun before step 100";
}

// With cheap levels 1 to 4 tokens give 1.6 / 10.6, 1.96 / 11.2, 2.176 / 11.8 and 2.3056 / 12.4 tokens per ns.
TEST(ShapeBudget, TheTimeOfEachDepthMayBeGiven) {
  ShapeBudget budget(costs({10, 10.5, 11, 11.5, 12}, {100}), TreeShape::chain(4), {});
  EXPECT_EQ(budget.choose(4), 0);
  const double cheap[] = {.1, .1, .1, .1}, dear_at_the_end[] = {.1, .1, 100, 100}, dear[] = {50, .1, .1, .1};
  budget.set_level_times(cheap);
  EXPECT_EQ(budget.choose(4), 4);
  budget.set_level_times(dear_at_the_end);
  EXPECT_EQ(budget.choose(4), 2);
  budget.set_level_times(dear);
  EXPECT_EQ(budget.choose(4), 0);
}

// A step without drafting earns 1, and a trial of three steps costs 3 times 20. So it begins at step 60. The
// product .02 * 50 is exactly 1 in double precision, so the sum of 60 such products is exactly 60.
TEST(TrialFund, StepsThatPayAreStepsOfTheTrial) {
  TrialFund fund;
  int waited = 1;
  while (!fund.try_now(50, 20, 3)) ++waited;
  EXPECT_EQ(waited, 60);
  fund.step_in_use();  // the trial has shown that drafting is worth its time, for a while
  fund.step_in_use();
  fund.step_in_use();
  EXPECT_FALSE(fund.try_now(50, 20, 3)) << "the trial is over";
  waited = 2;
  while (!fund.try_now(50, 20, 3)) ++waited;
  EXPECT_EQ(waited, 60) << "the next trial must be earned";
  EXPECT_TRUE(fund.try_now(50, 20, 3));
  EXPECT_TRUE(fund.try_now(50, 20, 3));
  EXPECT_FALSE(fund.try_now(50, 20, 3)) << "a trial takes three steps";
}

// Three rejections take the estimated acceptance from .6 to .234. A step of a trial then loses
// 13 - 10 * 1.234 = .662, and a step without a draft earns .2. So a trial of 100 steps begins at the 331st of
// these steps. 57 of them are among the first 60 steps. From the first step of the trial on, 200 drafts are
// accepted, then no more. The budget needs about 40 steps to see that drafting no longer pays. The 100 steps
// of the trial were over long before.
TEST(ShapeBudget, ATrialThatPaidDoesNotGoOnLater) {
  ShapeBudget budget(costs({10, 13}), TreeShape::chain(1), {.by_draft_model = false, .trial_steps = 100});
  for (int step = 0; step < 60; ++step) budget.observe_chain(budget.choose(1), 0);
  int waited = 0;
  while (budget.choose(1) == 0) ++waited;
  EXPECT_NEAR(waited, 273, 2);
  for (int step = 0; step < 200; ++step) {
    budget.observe_chain(1, 1);
    EXPECT_EQ(budget.choose(1), 1);
  }
  int refused = 0;
  for (; budget.choose(1) == 1; ++refused) budget.observe_chain(1, 0);
  EXPECT_GT(refused, 20);
  EXPECT_LT(refused, 70);
}

TEST(ShapeBudget, TokensThatTheDraftHasMissedCostTime) {
  ShapeBudget budget(costs({10, 11, 12}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), TreeShape::chain(2), {});
  EXPECT_GT(budget.choose(2, 0), 0);
  EXPECT_EQ(budget.choose(2, 9), 0);
}

TEST(ShapeBudget, GoodEvidenceIsLearnedSeparately) {
  ShapeBudget budget(costs({10, 14}), TreeShape::chain(1), kCopies);
  for (int step = 0; step < 400; ++step) {
    const int evidence = 1 + step % 2, drafted = budget.choose(1, 0, evidence);
    budget.observe_chain(drafted, evidence == 2 ? drafted : 0);
  }
  int with_good = 0, with_bad = 0;
  for (int step = 0; step < 20; ++step) {
    with_good += budget.choose(1, 0, 2);
    with_bad += budget.choose(1, 0, 1);
  }
  EXPECT_EQ(with_good, 20);
  EXPECT_LT(with_bad, 5);
}

/// Every part of the shape that is closed under parents and earlier siblings, by brute force.
TEST(ShapeBudget, NoPartOfAShapeGivesMoreTokensPerTime) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int> widths;
    const std::vector<std::vector<int>> some = {{1, 1, 1, 1}, {2, 1, 1}, {3, 1}, {2, 2}, {1, 2, 1}, {8}, {4}};
    widths = some[static_cast<std::size_t>(random() % some.size())];
    const TreeShape shape = TreeShape::of_widths(widths, "test");
    std::vector<double> target_ns{10};
    for (int n = 2; n <= shape.nodes(); ++n)
      target_ns.push_back(target_ns.back() + static_cast<double>(random() % 30) / 10);
    const double draft_ns = static_cast<double>(random() % 30) / 10;
    const auto table = costs(target_ns, {draft_ns});
    std::vector<int> parent(static_cast<std::size_t>(shape.nodes()), -1), depth = parent, rank = parent;
    std::vector<double> p(parent.size(), 1);
    depth[0] = 0;
    for (int node = 0; node < shape.nodes(); ++node) {
      for (int r = 0; r < shape.children(node); ++r) {
        const auto child = static_cast<std::size_t>(shape.first_child(node) + r);
        parent[child] = node;
        rank[child] = r;
        depth[child] = depth[static_cast<std::size_t>(node)] + 1;
        p[child] = p[static_cast<std::size_t>(node)] * .6 / (1 << std::min(r, 3));
      }
    }
    double best = 0;
    for (unsigned set = 0; set < 1u << (shape.nodes() - 1); ++set) {
      const auto has = [&](int node) { return node == 0 || (set >> (node - 1) & 1) != 0; };
      double tokens = 1;
      int rows = 1, deepest = 0;
      bool closed = true;
      for (int node = 1; node < shape.nodes(); ++node) {
        const auto at = static_cast<std::size_t>(node);
        if (!has(node)) continue;
        closed = closed && has(parent[at]) && (rank[at] == 0 || has(node - 1));
        tokens += p[at];
        deepest = std::max(deepest, depth[at]);
        ++rows;
      }
      if (closed) best = std::max(best, tokens / (table->target(rows) + deepest * draft_ns));
    }
    ShapeBudget budget(table, shape, {});
    const int chosen = budget.choose(100);
    double tokens = 1;
    int deepest = 0, rows = 1;
    std::vector<char> in(parent.size(), 0);
    in[0] = 1;
    for (int node = 0; node < shape.nodes(); ++node) {
      if (!in[static_cast<std::size_t>(node)]) continue;
      for (int r = 0; r < budget.children(node); ++r) {
        const auto child = static_cast<std::size_t>(shape.first_child(node) + r);
        in[child] = 1;
        tokens += p[child];
        deepest = std::max(deepest, depth[child]);
        ++rows;
      }
    }
    EXPECT_EQ(rows, 1 + chosen);
    EXPECT_NEAR(tokens / (table->target(rows) + deepest * draft_ns), best, 1e-12) << trial;
  }
}

TEST(BudgetOptions, AreAutoAndWereFixedBefore) {
  BudgetOptions options;
  EXPECT_TRUE(options.automatic());
  const auto infos = describe_options(option_fields(options));
  ASSERT_EQ(infos.size(), 1u);
  EXPECT_EQ(infos[0].default_value, "\"auto\"");
  EXPECT_EQ(infos[0].absent_means, "\"fixed\"");
  EXPECT_THROW(require_draft_costs(nullptr, "x"), Error);
  EXPECT_THROW(require_draft_costs(costs({1}).get(), "x"), Error);
  EXPECT_NO_THROW(require_draft_costs(costs({1}, {1}).get(), "x"));
}

TEST(DraftSwitch, StaysOnWhileItPays) {
  DraftSwitch worth({.first_guess = .5, .trial_steps = 4, .idle_steps = 3});
  for (int step = 0; step < 100; ++step) {
    EXPECT_TRUE(worth.decide(14, 10));
    worth.observe(2, 14);
  }
  int on = 0;
  for (int step = 0; step < 400; ++step) {
    on += worth.decide(14, 10);
    worth.observe(1, worth.on() ? 14 : 10);
  }
  EXPECT_LT(on, 80) << "it stops when it no longer pays";
  EXPECT_GT(on, 10) << "and is tried again";
  worth.begin();
  EXPECT_TRUE(worth.decide(14, 10)) << "a sequence begins anew";
}

TEST(DraftSwitch, IsNotEvenTriedWhereItCannotPay) {
  DraftSwitch worth({.first_guess = .5, .trial_steps = 8, .idle_steps = 5});
  for (int step = 0; step < 200; ++step) {
    EXPECT_FALSE(worth.decide(80, 10));
    worth.observe(1, 10);
  }
}

// From the first step of a trial on, 100 steps emit two tokens, then each step emits one. The switch needs 20
// steps to see that the part no longer pays. The 60 steps of the trial were over long before.
TEST(DraftSwitch, ATrialThatPaidDoesNotGoOnLater) {
  DraftSwitch worth({.first_guess = 0, .trial_steps = 60, .idle_steps = 0});
  int waited = 0;
  for (; !worth.decide(13, 10); ++waited) worth.observe(1, 10);
  EXPECT_GT(waited, 500);
  for (int step = 0; step < 100; ++step) {
    worth.observe(2, 13);
    EXPECT_TRUE(worth.decide(13, 10)) << step;
  }
  int refused = 0;
  for (; worth.on(); ++refused) {
    worth.observe(1, 13);
    worth.decide(13, 10);
  }
  EXPECT_GT(refused, 10);
  EXPECT_LT(refused, 40);
}

TEST(DraftSwitch, StepsThatCannotPayYetAreNotCounted) {
  DraftSwitch worth({.first_guess = .5, .trial_steps = 1, .idle_steps = 10});
  for (int step = 0; step < 10; ++step) {
    EXPECT_TRUE(worth.decide(14, 10)) << step;
    worth.observe(1, 14);
  }
  for (int step = 0; step < 2; ++step) {
    EXPECT_TRUE(worth.decide(14, 10)) << step;
    worth.observe(1, 14);
  }
  EXPECT_FALSE(worth.decide(14, 10));
}

}  // namespace
}  // namespace speclab::shape_budget_test
