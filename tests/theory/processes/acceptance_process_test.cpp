#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/theory/chain.h"
#include "core/theory/processes/acceptance_process.h"
#include "core/theory/processes/simulate_rounds.h"
#include "core/theory/step_costs.h"

namespace speclab::theory::acceptance_process_test {
namespace {

using testing::ElementsAre;

double mean_emitted(const PromptRounds& rounds) {
  double sum = 0;
  for (const Round& round : rounds) sum += round.emitted;
  return sum / rounds.size();
}

TEST(AcceptanceProcess, IidFollowsEq1) {
  const auto process = iid_process(0.7);
  EXPECT_DOUBLE_EQ(exact_expected_tokens(process, 5), expected_tokens(0.7, 5));
  EXPECT_DOUBLE_EQ(exact_alpha(process, 5), 0.7);
  const auto rounds = simulate_rounds(process, 5, 100'000, 1);
  EXPECT_NEAR(mean_emitted(rounds), expected_tokens(0.7, 5),
              4 * std::sqrt(tokens_variance(0.7, 5) / 100'000));
}

TEST(AcceptanceProcess, PositionalFollowsTheIdentity) {
  const std::vector<double> acceptance = {0.9, 0.5, 0.8};
  const auto process = positional_process(acceptance);
  EXPECT_DOUBLE_EQ(exact_expected_tokens(process, 3), positional_expected_tokens(acceptance));
  const auto rounds = simulate_rounds(process, 3, 100'000, 2);
  EXPECT_NEAR(mean_emitted(rounds), positional_expected_tokens(acceptance), 0.015);
  // The last entry also holds for longer drafts.
  const std::vector<double> longer = {0.9, 0.5, 0.8, 0.8, 0.8};
  EXPECT_DOUBLE_EQ(exact_expected_tokens(process, 5), positional_expected_tokens(longer));
}

TEST(AcceptanceProcess, SwitchingBeatsEq1AtItsMean) {
  const auto process = switching_process({0.9, 0.3}, 0.8);
  EXPECT_THAT(stationary_law(process),
              ElementsAre(testing::DoubleNear(0.5, 1e-12), testing::DoubleNear(0.5, 1e-12)));
  const double expected = (expected_tokens(0.9, 4) + expected_tokens(0.3, 4)) / 2;
  EXPECT_DOUBLE_EQ(exact_expected_tokens(process, 4), expected);
  EXPECT_NEAR(mean_emitted(simulate_rounds(process, 4, 200'000, 3)), expected, 0.03);
  EXPECT_GT(expected, expected_tokens(0.6, 4));  // Jensen
  EXPECT_GT(exact_alpha(process, 4), 0.6);       // easy rounds test more tokens
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

TEST(AcceptanceProcess, DecayFallsAlongTheDraft) {
  const auto process = decaying_process(.9, .8, 3);
  EXPECT_DOUBLE_EQ(acceptance_at(process, 0, 2), .9 * .64);
  EXPECT_DOUBLE_EQ(acceptance_at(process, 0, 9), .9 * .64) << "the last position holds for later ones";
  EXPECT_DOUBLE_EQ(exact_expected_tokens(process, 3), 1 + .9 + .9 * .72 + .9 * .72 * .576);
}

TEST(AcceptanceProcess, LengthsHaveTheGivenShares) {
  const std::vector<double> shares = {2, 0, 5, 1, 2};
  const auto process = lengths_process(shares);
  const std::vector<double> found = accepted_lengths(process, 4);
  ASSERT_EQ(found.size(), shares.size());
  for (std::size_t n = 0; n < shares.size(); ++n) EXPECT_NEAR(found[n], shares[n] / 10, 1e-15) << n;
  EXPECT_NEAR(exact_expected_tokens(process, 4), 1 + (2 * 5 + 3 + 4 * 2) / 10., 1e-14);
  EXPECT_NEAR(exact_expected_tokens(process, 9), exact_expected_tokens(process, 4), 1e-14)
      << "no round accepts more than the longest length";
  // With a shorter draft, longer lengths count as that draft.
  EXPECT_THAT(accepted_lengths(process, 2),
              ElementsAre(testing::DoubleNear(.2, 1e-15), testing::DoubleNear(0, 1e-15),
                          testing::DoubleNear(.8, 1e-15)));
  std::vector<double> drawn(shares.size());
  for (const Round& round : simulate_rounds(process, 4, 50'000, 6))
    ++drawn[static_cast<std::size_t>(round.accepted)];
  for (std::size_t n = 0; n < shares.size(); ++n) EXPECT_NEAR(drawn[n] / 50'000, shares[n] / 10, .01) << n;
}

TEST(AcceptanceProcess, MinimumVarianceHasTheMeanAndNoLawWithItVariesLess) {
  for (const double mean : {0., .3, 2., 2.36, 4.}) {
    const std::vector<double> shares = accepted_lengths(minimum_variance_process(mean), 5);
    double first = 0, second = 0;
    for (std::size_t n = 0; n < shares.size(); ++n) {
      first += shares[n] * static_cast<double>(n);
      second += shares[n] * static_cast<double>(n * n);
    }
    const double part = mean - std::floor(mean);
    EXPECT_NEAR(first, mean, 1e-14);
    EXPECT_NEAR(second - first * first, part * (1 - part), 1e-13);
  }
  EXPECT_THAT(joint_acceptance(minimum_variance_process(1.25), 3),
              ElementsAre(1, testing::DoubleNear(.25, 1e-15), testing::DoubleNear(0, 1e-15)));
}

/// Expected counts of the rest of a text, by recursion over the outcomes of its rounds.
RoundCounts rest_of_text(const AcceptanceProcess& process, std::size_t state, int gamma, int left) {
  if (left == 0) return {};
  RoundCounts counts{.rounds = 1};
  const int most = std::min(gamma, left);
  double reached = 1;
  for (int n = 0; n <= most; ++n) {
    const double a = n < most ? acceptance_at(process, state, n) : 0;
    const double here = reached * (1 - a);  // n accepted tokens
    counts.tests += here * (n < most ? n + 1 : n);
    counts.accepted += here * n;
    const int emitted = std::min(n + 1, left);
    counts.emitted += here * emitted;
    for (std::size_t next = 0; next < process.transition[state].size(); ++next)
      counts.add(rest_of_text(process, next, gamma, left - emitted), here * process.transition[state][next]);
    reached *= a;
  }
  return counts;
}

TEST(AcceptanceProcess, CountsOfATextByRecursion) {
  const AcceptanceProcess process{{{.9, .7}, {.2}}, {{.8, .2}, {.5, .5}}};
  const std::vector<double> law = stationary_law(process);
  for (const int gamma : {0, 1, 2, 7}) {
    for (const int tokens : {1, 2, 3, 6}) {
      SCOPED_TRACE(testing::Message() << gamma << " drafted, " << tokens << " tokens");
      RoundCounts expected;
      for (std::size_t state = 0; state < law.size(); ++state)
        expected.add(rest_of_text(process, state, gamma, tokens), law[state]);
      const RoundCounts found = counts_of_text(process, gamma, tokens);
      EXPECT_NEAR(found.rounds, expected.rounds, 1e-12);
      EXPECT_NEAR(found.tests, expected.tests, 1e-12);
      EXPECT_NEAR(found.accepted, expected.accepted, 1e-12);
      EXPECT_NEAR(found.emitted, tokens, 1e-12);
      EXPECT_NEAR(expected.emitted, tokens, 1e-12);
    }
  }
}

TEST(AcceptanceProcess, LongTextsHaveTheTauOfTheirRounds) {
  const auto process = switching_process({.9, .3}, .9);
  const RoundCounts shorter = counts_of_text(process, 4, 400), longer = counts_of_text(process, 4, 800);
  EXPECT_NEAR(400 / (longer.rounds - shorter.rounds), exact_expected_tokens(process, 4), 1e-9);
  EXPECT_NEAR((longer.accepted - shorter.accepted) / (longer.tests - shorter.tests), exact_alpha(process, 4),
              1e-9);
  EXPECT_LT(shorter.tau(), exact_expected_tokens(process, 4)) << "the end of a text cuts a round";
}

TEST(AcceptanceProcess, BadProcessesThrow) {
  EXPECT_THROW(decaying_process(1.2, .5, 3), Error);
  EXPECT_THROW(decaying_process(.5, .5, 0), Error);
  EXPECT_THROW(lengths_process(std::vector<double>{0, 0}), Error);
  EXPECT_THROW(lengths_process(std::vector<double>{1, -1, 1}), Error);
  EXPECT_THROW(minimum_variance_process(-.1), Error);
  EXPECT_THROW(counts_of_text(iid_process(.5), 3, 0), Error);
  EXPECT_THROW(counts_of_text(iid_process(.5), -1, 3), Error);
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
}  // namespace speclab::theory::acceptance_process_test
