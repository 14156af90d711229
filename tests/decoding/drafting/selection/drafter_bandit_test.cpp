#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/decoding/drafting/selection/drafter_bandit.h"
#include "core/decoding/drafting/selection/drafter_costs.h"

namespace speclab::drafter_bandit_test {
namespace {

const std::vector<char> kAllOfThree(3, 1), kBoth(2, 1);

std::shared_ptr<const StepCosts> table(std::vector<double> target_ns, std::vector<double> draft_ns) {
  return std::make_shared<const StepCosts>(
      StepCosts{.target_ns = std::move(target_ns), .draft_ns = std::move(draft_ns)});
}

TEST(DrafterCosts, AStepIsATargetForwardAndTheForwardsOfItsDrafter) {
  const DrafterCosts costs(
      {table({10, 12, 15}, {}), table({10, 12, 15}, {1, 1.5, 2.5}), table({10, 12, 15}, {3})});
  EXPECT_EQ(costs.drafters(), 3);
  EXPECT_DOUBLE_EQ(costs.step_ns(0, 2), 15) << "copies take no time";
  EXPECT_DOUBLE_EQ(costs.step_ns(1, 2), 15 + 1 + 1);
  EXPECT_DOUBLE_EQ(costs.step_ns(1, 2, 2), 15 + 2.5 + 1) << "the first forward reads two missed tokens";
  EXPECT_DOUBLE_EQ(costs.step_ns(1, 1, 1), 12 + 1.5);
  EXPECT_DOUBLE_EQ(costs.step_ns(1, 0, 2), 10) << "the model does not run";
  EXPECT_DOUBLE_EQ(costs.token_ns(0), 0);
  EXPECT_DOUBLE_EQ(costs.token_ns(2), 3);
  EXPECT_DOUBLE_EQ(costs.catch_up_ns(0, 2), 1.5 + 3);
  EXPECT_DOUBLE_EQ(costs.catch_up_ns(1, 2), 3);
  EXPECT_DOUBLE_EQ(costs.catch_up_ns(2, 3), 2.5);
  EXPECT_DOUBLE_EQ(costs.catch_up_ns(2, 0), 0);
  EXPECT_DOUBLE_EQ(costs.best_rate({2, 2, 2}), 3.0 / 15);
  EXPECT_DOUBLE_EQ(costs.best_rate({1, 2, 2}), 3.0 / 17) << "2 / 12 for copies";
}

TEST(DrafterBandit, TakesTheLargestUpperConfidenceBound) {
  DrafterBandit bandit(3, 2, {.exploration = 2, .memory = 1});
  bandit.begin();
  EXPECT_EQ(bandit.choose(kAllOfThree), 0) << "each one once, in order";
  bandit.observe(0, 3, 2);  // reward .75
  EXPECT_EQ(bandit.choose(kAllOfThree), 1);
  bandit.observe(1, 2, 2);  // .5
  EXPECT_EQ(bandit.choose(kAllOfThree), 2);
  bandit.observe(2, 2, 2);  // .5
  EXPECT_EQ(bandit.choose(kAllOfThree), 0);
  bandit.observe(0, 1, 2);  // .25: the mean is .5 after two steps
  // .5 + sqrt(2 ln 4 / 2) = 1.68 against .5 + sqrt(2 ln 4) = 2.17 of the others; the first of equals.
  EXPECT_EQ(bandit.choose(kAllOfThree), 1);
  bandit.observe(1, 4, 1);  // 2: the mean is 1.25
  // 1.25 + sqrt(2 ln 5 / 2) = 2.52 against .5 + sqrt(2 ln 5) = 2.29.
  EXPECT_EQ(bandit.choose(kAllOfThree), 1);
  DrafterBandit greedy(2, 1, {.exploration = 0, .memory = 1});
  greedy.begin();
  greedy.observe(0, 1, 2);
  greedy.observe(1, 2, 3);
  EXPECT_EQ(greedy.choose(kBoth), 1);
  greedy.begin();
  EXPECT_EQ(greedy.choose(kBoth), 0) << "a new text";
}

TEST(DrafterBandit, ADrafterThatSleepsIsNotChosen) {
  DrafterBandit bandit(2, 1, {.exploration = 0, .memory = 1});
  bandit.begin();
  const std::vector<char> second{0, 1}, none{0, 0};
  EXPECT_EQ(bandit.choose(second), 1);
  EXPECT_EQ(bandit.choose(none), -1);
  bandit.observe(1, .1, 1);
  EXPECT_EQ(bandit.choose(kBoth), 0) << "not tried yet";
  bandit.observe(0, 1, 1);
  EXPECT_EQ(bandit.choose(kBoth), 0);
  EXPECT_EQ(bandit.choose(second), 1);
}

/// Regret against the best drafter over `steps` steps, in which drafter i emits one token, and one more with
/// probability alpha[i]. used[i] counts its steps.
double regret_of(DrafterBandit& bandit, const std::vector<double>& alpha, int steps, std::mt19937& random,
                 std::vector<int>& used) {
  std::uniform_real_distribution<double> uniform;
  used.assign(alpha.size(), 0);
  const std::vector<char> awake(alpha.size(), 1);
  double regret = 0;
  for (int step = 0; step < steps; ++step) {
    const auto i = static_cast<std::size_t>(bandit.choose(awake));
    bandit.observe(static_cast<int>(i), uniform(random) < alpha[i] ? 2 : 1, 1);
    regret += (*std::max_element(alpha.begin(), alpha.end()) - alpha[i]) / 2;
    ++used[i];
  }
  return regret;
}

// A choice at random has a regret of 450 here. The regret of UCB1 grows with the logarithm of the steps.
TEST(DrafterBandit, LosesLittleAgainstTheBestDrafter) {
  std::mt19937 random(4);
  for (const double exploration : {2.0, .2}) {
    DrafterBandit bandit(3, 2, {.exploration = exploration, .memory = 1});
    bandit.begin();
    std::vector<int> used;
    const double first = regret_of(bandit, {.3, .9, .6}, 3000, random, used);
    EXPECT_LT(first, exploration > 1 ? 120 : 40);
    EXPECT_GT(used[1], 2200);
    EXPECT_GT(used[0], 1) << "it still tries the others";
    EXPECT_LT(regret_of(bandit, {.3, .9, .6}, 3000, random, used), exploration > 1 ? first / 2 : 40);
  }
}

/// Steps with the second drafter in the 500 steps after it became the better one, after 1000 steps.
int steps_after_the_change(double memory) {
  DrafterBandit bandit(2, 1, {.exploration = .05, .memory = memory});
  bandit.begin();
  int used = 0;
  for (int step = 0; step < 1500; ++step) {
    const int i = bandit.choose(kBoth), better = step < 1000 ? 0 : 1;
    bandit.observe(i, i == better ? .9 : .1, 1);
    used += step >= 1000 && i == 1 ? 1 : 0;
  }
  return used;
}

TEST(DrafterBandit, WithAShortMemoryItFollowsAChange) {
  EXPECT_LT(steps_after_the_change(1), 250);
  EXPECT_GT(steps_after_the_change(.98), 450);
}

}  // namespace
}  // namespace speclab::drafter_bandit_test
