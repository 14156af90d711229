#include "tests/theory/acceptance_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "core/theory/chain.h"
#include "core/theory/step_costs.h"

namespace speclab::simulate {
namespace {

using testing::ElementsAre;

double mean_emitted(const PromptRounds& rounds) {
  double sum = 0;
  for (const Round& round : rounds) sum += round.emitted;
  return sum / rounds.size();
}

TEST(AcceptanceProcess, IidFollowsEq1) {
  const auto process = iid_process(0.7);
  EXPECT_DOUBLE_EQ(exact_expected_tokens(process, 5), theory::expected_tokens(0.7, 5));
  EXPECT_DOUBLE_EQ(exact_alpha(process, 5), 0.7);
  const auto rounds = simulate_rounds(process, 5, 100'000, 1);
  EXPECT_NEAR(mean_emitted(rounds), theory::expected_tokens(0.7, 5),
              4 * std::sqrt(theory::tokens_variance(0.7, 5) / 100'000));
}

TEST(AcceptanceProcess, PositionalFollowsTheIdentity) {
  const std::vector<double> acceptance = {0.9, 0.5, 0.8};
  const auto process = positional_process(acceptance);
  EXPECT_DOUBLE_EQ(exact_expected_tokens(process, 3), theory::positional_expected_tokens(acceptance));
  const auto rounds = simulate_rounds(process, 3, 100'000, 2);
  EXPECT_NEAR(mean_emitted(rounds), theory::positional_expected_tokens(acceptance), 0.015);
  // The last entry also holds for longer drafts.
  const std::vector<double> longer = {0.9, 0.5, 0.8, 0.8, 0.8};
  EXPECT_DOUBLE_EQ(exact_expected_tokens(process, 5), theory::positional_expected_tokens(longer));
}

TEST(AcceptanceProcess, SwitchingBeatsEq1AtItsMean) {
  const auto process = switching_process({0.9, 0.3}, 0.8);
  EXPECT_THAT(stationary_law(process),
              ElementsAre(testing::DoubleNear(0.5, 1e-12), testing::DoubleNear(0.5, 1e-12)));
  const double expected = (theory::expected_tokens(0.9, 4) + theory::expected_tokens(0.3, 4)) / 2;
  EXPECT_DOUBLE_EQ(exact_expected_tokens(process, 4), expected);
  EXPECT_NEAR(mean_emitted(simulate_rounds(process, 4, 200'000, 3)), expected, 0.03);
  EXPECT_GT(expected, theory::expected_tokens(0.6, 4));  // Jensen
  EXPECT_GT(exact_alpha(process, 4), 0.6);               // easy rounds test more tokens
}

TEST(AcceptanceProcess, UnevenTransitionsHaveTheirStationaryLaw) {
  const AcceptanceProcess process{{{0.9}, {0.2}}, {{0.9, 0.1}, {0.3, 0.7}}};
  EXPECT_THAT(stationary_law(process),
              ElementsAre(testing::DoubleNear(0.75, 1e-9), testing::DoubleNear(0.25, 1e-9)));
  const AcceptanceProcess cycle{{{0.9}, {0.2}}, {{0, 1}, {1, 0}}};
  EXPECT_THAT(stationary_law(cycle), ElementsAre(0.5, 0.5));
  const auto rounds = simulate_rounds(process, 3, 200'000, 4);
  EXPECT_NEAR(mean_emitted(rounds), exact_expected_tokens(process, 3), 0.03);
}

TEST(AcceptanceProcess, ExpectedSumsAreThoseOfTheTestedPositions) {
  const auto rounds = simulate_rounds(positional_process({0.5, 0.25}), 2, 200, 5);
  for (const Round& round : rounds) {
    const bool second = round.accepted >= 1;
    EXPECT_DOUBLE_EQ(round.expected_sum, second ? 0.75 : 0.5);
    EXPECT_DOUBLE_EQ(round.expected_variance, second ? 0.25 + 0.1875 : 0.25);
    EXPECT_EQ(round.tests(), second ? 2 : 1);
    EXPECT_EQ(round.emitted, round.accepted + 1);
  }
}

TEST(AcceptanceProcess, TextEndsExactlyAndTheLastRoundIsCensored) {
  int cut = 0;
  for (int seed = 0; seed < 200; ++seed) {
    const auto rounds = simulate_prompt(iid_process(0.8), 5, 20, seed);
    int emitted = 0;
    for (const Round& round : rounds) emitted += round.emitted;
    EXPECT_EQ(emitted, 20);
    const Round& last = rounds.back();
    if (last.emitted == last.accepted) {
      ++cut;
      EXPECT_FALSE(last.rejected);
      EXPECT_NEAR(last.expected_sum, 0.8 * last.accepted, 1e-12);
    }
  }
  EXPECT_GT(cut, 50);
}

TEST(AcceptanceProcess, SchedulesSeeTheRoundsBefore) {
  const auto rounds = simulate_prompt(
      iid_process(1), [](const PromptRounds& before) { return static_cast<int>(before.size()); }, 15, 1);
  ASSERT_EQ(rounds.size(), 5u);  // 1 + 2 + 3 + 4 + 5
  for (int i = 0; i < 5; ++i) EXPECT_EQ(rounds[i].drafted, i);
}

TEST(AcceptanceProcess, SameSeedSameRounds) {
  auto accepted = [](std::uint64_t seed) {
    std::vector<int> out;
    for (const Round& round : simulate_rounds(switching_process({0.9, 0.3}, 0.8), 4, 50, seed))
      out.push_back(round.accepted);
    return out;
  };
  EXPECT_EQ(accepted(7), accepted(7));
  EXPECT_NE(accepted(7), accepted(8));
}

TEST(AcceptanceProcess, BadProcessesThrow) {
  EXPECT_THROW(iid_process(1.1), Error);
  EXPECT_THROW(positional_process({}), Error);
  EXPECT_THROW(switching_process({}, 0.5), Error);
  EXPECT_THROW(switching_process({0.5, 0.5}, 1.5), Error);
  EXPECT_THROW(stationary_law({{{0.5}}, {{0.5}}}), Error);
  EXPECT_THROW(simulate_rounds(iid_process(0.5), -1, 5, 1), Error);
  EXPECT_THROW(simulate_rounds(iid_process(0.5), 3, 0, 1), Error);
  EXPECT_THROW(simulate_prompt(iid_process(0.5), 3, 0, 1), Error);
  EXPECT_THROW(exact_alpha(iid_process(0.5), 0), Error);
}

}  // namespace
}  // namespace speclab::simulate
