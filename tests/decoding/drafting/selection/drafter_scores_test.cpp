#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/decoding/drafting/selection/drafter_scores.h"

namespace speclab::drafter_scores_test {
namespace {

const std::vector<char> kBoth(2, 1);

std::shared_ptr<const StepCosts> costs_of_steps(std::vector<double> target_ns, std::vector<double> draft_ns) {
  return std::make_shared<const StepCosts>(
      StepCosts{.target_ns = std::move(target_ns), .draft_ns = std::move(draft_ns)});
}

/// All drafters copy, so a step takes only the time of its target forward.
std::shared_ptr<const DrafterCosts> copies(std::size_t count, std::vector<double> target_ns = {1}) {
  return std::make_shared<const DrafterCosts>(
      std::vector<std::shared_ptr<const StepCosts>>(count, costs_of_steps(std::move(target_ns), {})));
}

/// The weights with which `choose` draws.
std::vector<double> weights_of(DrafterScores& scores, const std::vector<char>& awake) {
  std::vector<double> seen;
  Coins::Script script = [&](std::span<const double> weights) {
    seen.assign(weights.begin(), weights.end());
    return std::size_t{0};
  };
  scores.choose(awake, Coins::scripted(&script), 7);
  double sum = 0;
  for (const double weight : seen) sum += weight;
  for (double& weight : seen) weight /= sum;
  return seen;
}

TEST(DrafterScores, TokensPerTimeOfOnePlace) {
  const auto costs = std::make_shared<const DrafterCosts>(std::vector{costs_of_steps({10, 12, 15}, {}),
                                                                      costs_of_steps({10, 12, 15}, {1, 1.5}),
                                                                      costs_of_steps({10, 12, 15}, {3, 4})});
  for (const bool any_length : {false, true}) {
    DrafterScores scores(
        costs, {2, 2, 2},
        {.learner = DrafterLearner::leader, .rate = 1, .memory = 1, .any_length = any_length});
    scores.begin();
    EXPECT_EQ(scores.rate(0), 0);
    scores.add(1, std::vector<double>{.5, .4});
    // One token: 1.5 tokens in 12 + 1 + 4 (model 2 reads two tokens) + .5 (its own last token).
    // Two tokens: 1 + .5 + .2 tokens in 15 + 2 + 4 + .2.
    const double one = 1.5 / 17.5, two = 1.7 / 21.2;
    EXPECT_NEAR(scores.rate(1), any_length ? one : two, 1e-12);
    scores.add(0, std::vector<double>{1});  // only one token was found
    // 2 tokens in 12 + 1.5 + 4.
    EXPECT_NEAR(scores.rate(0), 2 / 17.5, 1e-12);
    scores.add(0, std::vector<double>{0, 0});
    // One token: 3 tokens in 17.5 + 12 + 1 + 3. Two: 3 tokens in 17.5 + 15 + 1 + 3.
    EXPECT_NEAR(scores.rate(0), any_length ? 3 / 33.5 : 3 / 36.5, 1e-12);
    EXPECT_EQ(scores.rate(2), 0);
    scores.begin();
    EXPECT_EQ(scores.rate(0), 0) << "a new text";
  }
}

TEST(DrafterScores, OldPlacesLoseWeight) {
  DrafterScores scores(copies(1), {1},
                       {.learner = DrafterLearner::leader, .rate = 1, .memory = .5, .any_length = false});
  scores.begin();
  scores.add(0, std::vector<double>{1});
  scores.add(0, std::vector<double>{0});
  EXPECT_NEAR(scores.rate(0), (.5 * 2 + 1) / 1.5, 1e-12);
}

TEST(DrafterScores, WeightsAreExponentialInTheScores) {
  DrafterScores scores(
      copies(3), {1, 1, 1},
      {.learner = DrafterLearner::exponential, .rate = .7, .memory = 1, .any_length = false});
  scores.begin();
  for (const double one : {1.0, 0.0, 1.0}) scores.add(0, std::vector<double>{one});
  for (const double one : {0.0, 0.0, 1.0}) scores.add(1, std::vector<double>{one});
  // The largest rate is 2; the rates are 5/3 and 4/3. The third drafter was not scored and counts as the
  // best.
  const double behind = std::exp(-.7 * 3 * (5.0 / 3 - 4.0 / 3) / 2), sum = 2 + behind;
  const std::vector<char> all(3, 1), without_third{1, 1, 0};
  const std::vector<double> weights = weights_of(scores, all);
  ASSERT_EQ(weights.size(), 3u);
  EXPECT_NEAR(weights[0], 1 / sum, 1e-12);
  EXPECT_NEAR(weights[1], behind / sum, 1e-12);
  EXPECT_NEAR(weights[2], 1 / sum, 1e-12);
  EXPECT_EQ(weights_of(scores, without_third)[2], 0);
  int drawn[3] = {0, 0, 0};
  for (int position = 0; position < 20000; ++position)
    ++drawn[scores.choose(without_third, Coins(3, 1), position)];
  EXPECT_NEAR(drawn[1] / 20000.0, behind / (1 + behind), .015);  // four deviations
  EXPECT_EQ(drawn[2], 0);
}

TEST(DrafterScores, TheLeaderIsTheFirstOfTheBest) {
  DrafterScores scores(copies(2), {1, 1},
                       {.learner = DrafterLearner::leader, .rate = 1, .memory = 1, .any_length = false});
  scores.begin();
  const Coins coins(1, 1);
  const std::vector<char> none{0, 0}, second{0, 1};
  EXPECT_EQ(scores.choose(none, coins, 0), -1);
  EXPECT_EQ(scores.choose(second, coins, 0), 1);
  EXPECT_EQ(scores.choose(kBoth, coins, 0), 0) << "neither was scored";
  scores.add(0, std::vector<double>{1});
  EXPECT_EQ(scores.choose(kBoth, coins, 0), 0) << "the other one counts as equal";
  scores.add(1, std::vector<double>{1});
  scores.add(0, std::vector<double>{.5});
  EXPECT_EQ(scores.choose(kBoth, coins, 0), 1);
}

/// Exact regret of the exponential weights against the best of three drafters, for the made acceptance
/// accepted[place][drafter], in units of the largest reward. The draws do not matter, because all drafters
/// are scored.
double hedge_regret(const std::vector<std::vector<double>>& accepted, double rate) {
  DrafterScores scores(
      copies(3), {1, 1, 1},
      {.learner = DrafterLearner::exponential, .rate = rate, .memory = 1, .any_length = false});
  scores.begin();
  const std::vector<char> all(3, 1);
  std::vector<double> total(3, 0);
  double own = 0;
  for (const std::vector<double>& place : accepted) {
    const std::vector<double> weights = weights_of(scores, all);
    for (std::size_t i = 0; i < 3; ++i) {
      own += weights[i] * (1 + place[i]) / 2;
      total[i] += (1 + place[i]) / 2;
    }
    for (int i = 0; i < 3; ++i) scores.add(i, std::vector<double>{place[static_cast<std::size_t>(i)]});
  }
  return *std::max_element(total.begin(), total.end()) - own;
}

// The bound of Cesa-Bianchi and Lugosi holds for every sequence of rewards: for drafters that take turns at
// being the best, and for random ones.
TEST(DrafterScores, ExponentialWeightsKeepTheirRegretBound) {
  constexpr int kPlaces = 800;
  const double rate = std::sqrt(8 * std::log(3.0) / kPlaces), bound = std::sqrt(kPlaces * std::log(3.0) / 2);
  std::vector<std::vector<double>> turns, random_ones;
  std::mt19937 random(9);
  std::uniform_real_distribution<double> uniform;
  for (int place = 0; place < kPlaces; ++place) {
    std::vector<double> turn(3, 0);
    turn[static_cast<std::size_t>(place % 3)] = 1;
    turns.push_back(turn);
    std::vector<double> drawn;
    for (const double alpha : {.2, .8, .5}) drawn.push_back(uniform(random) < alpha ? 1 : 0);
    random_ones.push_back(drawn);
  }
  EXPECT_LT(hedge_regret(turns, rate), bound);
  const double learned = hedge_regret(random_ones, rate);
  EXPECT_LT(learned, bound);
  EXPECT_GT(learned, 0);
  EXPECT_GT(hedge_regret(random_ones, 0), 100) << "equal weights do not learn: about 800 * .3 / 2";
}

/// Places after which the leader is the second drafter, which became the better one after 400 places.
int places_until_the_leader_changes(double memory) {
  DrafterScores scores(copies(2), {1, 1},
                       {.learner = DrafterLearner::leader, .rate = 1, .memory = memory, .any_length = false});
  scores.begin();
  for (int place = 0; place < 2000; ++place) {
    if (place >= 400 && scores.choose(kBoth, Coins(1, 1), place) == 1) return place - 400;
    const bool second = place >= 400;
    scores.add(0, std::vector<double>{second ? .1 : .9});
    scores.add(1, std::vector<double>{second ? .9 : .1});
  }
  return 2000;
}

TEST(DrafterScores, WithAShortMemoryTheLeaderChangesSooner) {
  EXPECT_NEAR(places_until_the_leader_changes(1), 401, 2);
  EXPECT_LT(places_until_the_leader_changes(.97), 30);  // .97^23 = .5
}

}  // namespace
}  // namespace speclab::drafter_scores_test
