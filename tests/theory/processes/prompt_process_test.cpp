#include "core/theory/processes/prompt_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/base/error.h"
#include "core/theory/chain.h"
#include "core/theory/processes/simulate_rounds.h"

namespace speclab::theory::prompt_process_test {
namespace {

/// Draws of alpha from a beta law as a ratio of gamma laws, without the inverse of its distribution.
std::vector<double> beta_draws(double a, double b, int count) {
  std::mt19937_64 random(3);
  std::gamma_distribution<double> first(a), second(b);
  std::vector<double> out;
  for (int i = 0; i < count; ++i) {
    const double x = first(random), y = second(random);
    out.push_back(x / (x + y));
  }
  return out;
}

TEST(PromptProcess, ABetaLawHasItsMeanCorrelationAndMoments) {
  constexpr double kMean = .7, kCorrelation = .2;  // a + b = 4
  const PromptProcess process = PromptProcess::beta(kMean, kCorrelation);
  constexpr int kDraws = 200'000;
  const std::vector<double> draws = beta_draws(2.8, 1.2, kDraws);
  double mean = 0, square = 0, tokens = 0, of_quantiles = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double alpha = draws[static_cast<std::size_t>(i)];
    mean += alpha / kDraws;
    square += alpha * alpha / kDraws;
    tokens += expected_tokens(alpha, 5) / kDraws;
  }
  constexpr int kQuantiles = 20'000;
  for (int i = 0; i < kQuantiles; ++i)
    of_quantiles += exact_expected_tokens(process.draw((i + .5) / kQuantiles), 5) / kQuantiles;
  EXPECT_NEAR((square - mean * mean) / (kMean * (1 - kMean)), kCorrelation, .005);
  EXPECT_NEAR(process.expected_tokens(5), tokens, .02);
  EXPECT_NEAR(process.expected_tokens(5), of_quantiles, 2e-5);
  EXPECT_GT(process.expected_tokens(5), expected_tokens(kMean, 5)) << "Jensen's inequality";
  EXPECT_NEAR(process.of_round(1).alpha(), kMean, 1e-15);
}

TEST(PromptProcess, CountsOfATextAverageOverAlpha) {
  for (const double correlation : {.05, .3, .8}) {  // the density is infinite at both ends for .8
    const PromptProcess process = PromptProcess::beta(.6, correlation);
    constexpr int kParts = 4000;
    RoundCounts expected;
    for (int i = 0; i < kParts; ++i)
      expected.add(counts_of_text(process.draw((i + .5) / kParts), 4, 30), 1. / kParts);
    const RoundCounts found = process.of_text(4, 30);
    EXPECT_NEAR(found.rounds, expected.rounds, 2e-4 * expected.rounds) << correlation;
    EXPECT_NEAR(found.tests, expected.tests, 2e-4 * expected.tests) << correlation;
    EXPECT_NEAR(found.accepted, expected.accepted, 2e-4 * expected.accepted) << correlation;
    EXPECT_EQ(found.emitted, 30);
  }
  const PromptProcess process = PromptProcess::beta(.6, .3);
  EXPECT_LT(process.of_text(4, 400).tau(), process.expected_tokens(4))
      << "hard prompts have more rounds in a text of given length";
}

TEST(PromptProcess, AMixtureDrawsItsPartsByWeight) {
  const PromptProcess process = PromptProcess::mixture({iid_process(.9), iid_process(.2)}, {1, 3});
  EXPECT_DOUBLE_EQ(process.expected_tokens(3), .25 * expected_tokens(.9, 3) + .75 * expected_tokens(.2, 3));
  EXPECT_DOUBLE_EQ(process.draw(.2).acceptance[0][0], .9);
  EXPECT_DOUBLE_EQ(process.draw(.3).acceptance[0][0], .2);
  EXPECT_DOUBLE_EQ(process.draw(.999).acceptance[0][0], .2);
  const RoundCounts found = process.of_text(3, 20);
  EXPECT_NEAR(found.rounds,
              .25 * counts_of_text(iid_process(.9), 3, 20).rounds +
                  .75 * counts_of_text(iid_process(.2), 3, 20).rounds,
              1e-12);
}

TEST(PromptProcess, ARecordedRunRepeatsItsPrompts) {
  const auto round = [](int drafted, int accepted, int emitted) {
    return Round{
        .drafted = drafted, .accepted = accepted, .rejected = accepted < drafted, .emitted = emitted};
  };
  // Left out: a shorter draft, a round that the end of its text cut, and a prompt without other rounds.
  const std::vector<PromptRounds> run = {
      {round(3, 3, 4), round(3, 1, 2), round(2, 2, 3), round(3, 2, 2)}, {round(3, 0, 1)}, {round(1, 1, 2)}};
  const PromptProcess process = PromptProcess::recorded(run);
  EXPECT_EQ(process.most_gamma(), 3);
  EXPECT_DOUBLE_EQ(process.expected_tokens(3), ((4 + 2) / 2. + 1) / 2);
  EXPECT_DOUBLE_EQ(process.expected_tokens(1), (2 + 1) / 2.) << "longer accepted drafts are cut";
  EXPECT_THROW(process.expected_tokens(4), Error);
  EXPECT_THROW(simulate_run(process, 4, 2, 10, 1), Error);
  EXPECT_THROW(PromptProcess::recorded(std::vector<PromptRounds>{{round(0, 0, 1)}}), Error);
}

/// Checks that the rounds of many simulated prompts have the expected counts.
void expect_simulated(const PromptProcess& process, int gamma) {
  constexpr int kPrompts = 3000, kTokens = 40;
  const RoundCounts expected = process.of_text(gamma, kTokens);
  std::vector<RoundCounts> prompts;
  for (const PromptRounds& rounds : simulate_run(process, gamma, kPrompts, kTokens, 11)) {
    RoundCounts counts;
    for (const Round& round : rounds)
      counts.add({1, double(round.emitted), double(round.tests()), double(round.accepted)}, 1);
    prompts.push_back(counts);
  }
  for (double RoundCounts::* field : {&RoundCounts::rounds, &RoundCounts::tests, &RoundCounts::accepted}) {
    double sum = 0, squares = 0;
    for (const RoundCounts& counts : prompts) sum += counts.*field, squares += counts.*field * counts.*field;
    const double mean = sum / kPrompts, variance = squares / kPrompts - mean * mean;
    EXPECT_NEAR(mean, expected.*field, 4.5 * std::sqrt(variance / kPrompts));
  }
  for (const RoundCounts& counts : prompts) EXPECT_EQ(counts.emitted, kTokens);
}

TEST(PromptProcess, SimulatedRunsHaveTheExpectedCounts) {
  expect_simulated(iid_process(.7), 4);
  expect_simulated(decaying_process(.95, .8, 8), 6);
  expect_simulated(switching_process({.9, .4}, .9), 4);
  expect_simulated(minimum_variance_process(2.4), 4);
  expect_simulated(PromptProcess::beta(.7, .15), 4);
  expect_simulated(PromptProcess::mixture({iid_process(.9), switching_process({.8, .1}, .5)}), 3);
}

TEST(PromptProcess, BadNumbersThrow) {
  EXPECT_THROW(PromptProcess::beta(0, .5), Error);
  EXPECT_THROW(PromptProcess::beta(.5, 1), Error);
  EXPECT_THROW(PromptProcess::mixture({}), Error);
  EXPECT_THROW(PromptProcess::mixture({iid_process(.5)}, {0}), Error);
  EXPECT_THROW(PromptProcess::mixture({iid_process(.5)}, {1, 1}), Error);
  EXPECT_THROW(PromptProcess(AcceptanceProcess{}), Error);
  EXPECT_THROW(PromptProcess(iid_process(.5)).expected_tokens(-1), Error);
}

}  // namespace
}  // namespace speclab::theory::prompt_process_test
