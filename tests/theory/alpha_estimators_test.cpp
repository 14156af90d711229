#include "core/theory/alpha_estimators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "core/theory/chain.h"
#include "core/theory/processes/simulate_rounds.h"
#include "core/theory/step_costs.h"

namespace speclab::theory::alpha_estimators_test {
namespace {

using testing::ElementsAre;

constexpr stats::BootstrapOptions kFew{.resamples = 200};

std::vector<PromptRounds> simulated(const AcceptanceProcess& process, int prompts, int gamma, int rounds,
                                    std::uint64_t seed) {
  std::vector<PromptRounds> run;
  for (int i = 0; i < prompts; ++i) run.push_back(simulate_rounds(process, gamma, rounds, seed * 1000 + i));
  return run;
}

/// Two prompts, counted by hand.
std::vector<PromptRounds> small_run() {
  return {{{.drafted = 3, .accepted = 3, .emitted = 4, .expected_sum = 2.4, .expected_variance = 0.3},
           {.drafted = 3,
            .accepted = 1,
            .rejected = true,
            .emitted = 2,
            .expected_sum = 1.2,
            .expected_variance = 0.4}},
          {{.drafted = 0, .emitted = 1},
           {.drafted = 2,
            .accepted = 0,
            .rejected = true,
            .emitted = 1,
            .expected_sum = 0.4,
            .expected_variance = 0.24},
           {.drafted = 3, .accepted = 2, .emitted = 2, .expected_sum = 1.5, .expected_variance = 0.3}}};
}

/// Emitted tokens per step.
double tau(const std::vector<PromptRounds>& run) {
  double emitted = 0, steps = 0;
  for (const PromptRounds& prompt : run) {
    for (const Round& round : prompt) emitted += round.emitted, ++steps;
  }
  return emitted / steps;
}

TEST(Estimators, CountedByHand) {
  const auto run = small_run();
  const auto mle = alpha_mle(run);
  EXPECT_DOUBLE_EQ(mle->value, 6 / 8.0);
  EXPECT_EQ(mle->terms, 8);
  EXPECT_NEAR(mle->wilson->lo, stats::wilson_interval(6, 8)->lo, 1e-15);
  EXPECT_GE(mle->value, mle->ci->lo);
  EXPECT_DOUBLE_EQ(alpha_min(run)->value, 5.5 / 8);
  EXPECT_FALSE(alpha_min(run)->wilson);
  EXPECT_DOUBLE_EQ(draft_utilization(run)->value, 6 / 11.0);
  EXPECT_THAT(accepted_histogram(run), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(draft_length_counts(run), ElementsAre(1, 0, 1, 3));
  const auto at = acceptance_by_position(run);
  ASSERT_EQ(at.size(), 3u);
  EXPECT_DOUBLE_EQ(at[0].acceptance, 3 / 4.0);
  EXPECT_DOUBLE_EQ(at[1].acceptance, 2 / 3.0);
  EXPECT_DOUBLE_EQ(at[2].acceptance, 1);
  EXPECT_DOUBLE_EQ(at[1].joint, 0.5);
  EXPECT_EQ(at[2].wilson->hi, 1);
  const auto agreement = estimators_agree(run);
  EXPECT_DOUBLE_EQ(agreement->difference, 0.5 / 8);
  EXPECT_DOUBLE_EQ(agreement->z, 0.5 / std::sqrt(1.24));
  EXPECT_NEAR(agreement->p_value, 0.6534, 1e-4);
  const double eq1 = (1 + expected_tokens(.75, 2) + 3 * expected_tokens(.75, 3)) / 5;
  EXPECT_DOUBLE_EQ(tokens_over_eq1(run)->value, 2 / eq1);
}

TEST(Estimators, NaiveRatioIsBiasedAndTheMleIsNot) {
  // Alpha .7, gamma 5: the naive ratio tends to .388; the MLE of 500 rounds has mean .6992 and sd
  // .0125, against a predicted sqrt(a (1 - a) / tests) = .0123.
  EXPECT_NEAR(expected_draft_utilization(.7, 5), .388, 5e-4);
  EXPECT_NEAR(std::sqrt(.7 * .3 / (500 * expected_tokens(.7, 4))), .0123, 5e-5);
  double sum = 0, squares = 0, naive = 0;
  const int runs = 4000;
  for (int i = 0; i < runs; ++i) {
    const std::vector<PromptRounds> run = {simulate_rounds(iid_process(.7), 5, 500, i)};
    const double mle = alpha_mle(run, kFew)->value;
    sum += mle;
    squares += mle * mle;
    naive += draft_utilization(run, kFew)->value / runs;
  }
  const double mean = sum / runs;
  EXPECT_NEAR(naive, .388, 1e-3);
  EXPECT_NEAR(mean, .7, 4 * .0125 / std::sqrt(runs));
  EXPECT_NEAR(mean, .6992, .0125 / 8);
  EXPECT_NEAR(std::sqrt(squares / runs - mean * mean), .0125, .0004);
}

TEST(Estimators, TeacherForcedIsTheMeanOverPositions) {
  const std::vector<std::vector<double>> expected = {{.5, 1}, {}, {.25, .25, .25, 0}};
  const auto alpha = alpha_teacher_forced(expected);
  EXPECT_DOUBLE_EQ(alpha->value, 2.25 / 6);
  EXPECT_EQ(alpha->terms, 6);
  EXPECT_FALSE(alpha->wilson);
  EXPECT_NEAR(alpha->ci->hi, .75, 1e-12);
  EXPECT_FALSE(alpha_teacher_forced({}));
  const std::vector<std::vector<double>> bad = {{.5, 1.5}};
  EXPECT_THROW(alpha_teacher_forced(bad), Error);
}

TEST(Estimators, UtilizationOfOtherEngines) {
  // In a published report, accepted / proposed falls from 69.7 % at K = 1 to 37.8 % at K = 6, but alpha
  // hardly changes.
  EXPECT_NEAR(alpha_from_utilization(.697, 1), .697, 1e-12);
  EXPECT_NEAR(alpha_from_utilization(.378, 6), .727, 5e-4);
  EXPECT_EQ(alpha_from_utilization(0, 3), 0);
  EXPECT_EQ(alpha_from_utilization(1, 3), 1);
  EXPECT_NEAR(alpha_from_utilization(expected_draft_utilization(.8, 4), 4), .8, 1e-13);
  EXPECT_THROW(alpha_from_utilization(1.1, 3), Error);
  EXPECT_THROW(alpha_from_utilization(.5, 0), Error);
}

TEST(Estimators, MleIsRightForMixedGammasAndCutTexts) {
  std::vector<PromptRounds> run;
  for (int prompt = 0; prompt < 400; ++prompt) {
    auto schedule = [prompt](const PromptRounds& before) {
      return static_cast<int>((before.size() * 7 + prompt) % 6);
    };
    run.push_back(simulate_prompt(iid_process(.6), schedule, 100, prompt));
  }
  const auto mle = alpha_mle(run, kFew);
  EXPECT_NEAR(mle->value, .6, 4 * std::sqrt(.24 / mle->terms));
  EXPECT_NEAR(alpha_min(run, kFew)->value, .6, 1e-12);
}

TEST(Estimators, AlphaMinHasTheSmallerInterval) {
  const auto run = simulated(switching_process({.8, .6}, .5), 60, 4, 60, 3);
  const auto mle = alpha_mle(run), rao_blackwell = alpha_min(run);
  EXPECT_LT(rao_blackwell->ci->hi - rao_blackwell->ci->lo, 0.7 * (mle->ci->hi - mle->ci->lo));
  EXPECT_LT(std::abs(estimators_agree(run)->z), 4);
}

TEST(Estimators, AgreementFindsAWrongExpectation) {
  auto run = simulated(iid_process(.7), 20, 4, 100, 5);
  EXPECT_GT(estimators_agree(run)->p_value, 1e-3);
  for (auto& prompt : run) {
    for (auto& round : prompt) round.expected_sum *= 0.93;  // as if rows had another temperature
  }
  EXPECT_LT(estimators_agree(run)->p_value, 1e-4);
  // At temperature 0 nothing is random, so a difference of one test is a bug.
  std::vector<PromptRounds> greedy = {
      {{.drafted = 2, .accepted = 1, .rejected = true, .emitted = 2, .expected_sum = 1}}};
  EXPECT_EQ(estimators_agree(greedy)->p_value, 1);
  greedy[0][0].expected_sum = 0;
  EXPECT_EQ(estimators_agree(greedy)->p_value, 0);
  EXPECT_TRUE(std::isinf(estimators_agree(greedy)->z));
}

TEST(Estimators, PositionsOfARunGiveItsTau) {
  const auto run = simulated(positional_process({.9, .4, .7}), 30, 3, 200, 8);
  std::vector<double> acceptance;
  for (const auto& at : acceptance_by_position(run)) acceptance.push_back(at.acceptance);
  EXPECT_NEAR(positional_expected_tokens(acceptance), tau(run), 1e-12);
  EXPECT_NEAR(acceptance[1], .4, .03);
}

TEST(Estimators, TauOverEq1SeesClusteredRounds) {
  EXPECT_NEAR(tokens_over_eq1(simulated(iid_process(.7), 50, 5, 400, 9), kFew)->value, 1, .01);
  const auto process = switching_process({.95, .3}, .9);
  const auto ratio = tokens_over_eq1(simulated(process, 50, 5, 400, 9), kFew);
  const double exact = exact_expected_tokens(process, 5) / expected_tokens(exact_alpha(process, 5), 5);
  EXPECT_NEAR(ratio->value, exact, .02);
  EXPECT_LT(exact, 1);  // acceptance rises along the draft, because drafts that survive are in easy rounds
  EXPECT_GT(exact_expected_tokens(process, 5), expected_tokens((.95 + .3) / 2, 5));  // Jensen
  EXPECT_LT(ratio->ci->hi, 1);
  EXPECT_GT(tokens_over_eq1(simulated(positional_process({.9, .7, .5}), 50, 3, 400, 9), kFew)->ci->lo, 1);
}

TEST(Estimators, ClusterBootstrapIsWiderWhenPromptsDiffer) {
  std::vector<PromptRounds> run;
  for (int prompt = 0; prompt < 30; ++prompt) {
    run.push_back(simulate_rounds(iid_process(prompt % 2 ? .9 : .5), 4, 60, prompt));
  }
  const auto mle = alpha_mle(run);
  EXPECT_GT(mle->ci->hi - mle->ci->lo, 2 * (mle->wilson->hi - mle->wilson->lo));
}

/// Share of simulated runs in which a test rejects at 5 %.
template <typename PValue>
double rejections(const AcceptanceProcess& process, PValue&& p_value) {
  int rejected = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const auto run = simulated(process, 20, 4, 40, 50 + trial);
    rejected += p_value(run) < 0.05;
  }
  return rejected / 400.0;
}

double positions_p(const std::vector<PromptRounds>& run) { return iid_position_test(run)->p_value; }
double serial_p(const std::vector<PromptRounds>& run) { return serial_correlation(run)->ljung_box.p_value; }
double prompts_p(const std::vector<PromptRounds>& run) { return prompt_dispersion(run)->chi2.p_value; }
double drift_p(const std::vector<PromptRounds>& run) { return alpha_drift(run)->chi2.p_value; }

/// 20 prompts of 39 steps. `alpha_of(prompt, third)` is the acceptance in a third of a prompt's steps.
template <typename Alpha>
std::vector<PromptRounds> run_with_thirds(Alpha&& alpha_of, int trial) {
  std::vector<PromptRounds> run(20);
  for (int prompt = 0; prompt < 20; ++prompt) {
    for (int third = 0; third < 3; ++third) {
      const PromptRounds part =
          simulate_rounds(iid_process(alpha_of(prompt, third)), 4, 13, 1000 * trial + 3 * prompt + third);
      run[prompt].insert(run[prompt].end(), part.begin(), part.end());
    }
  }
  return run;
}

/// Share of such runs in which the test of a drift rejects at 5 %.
template <typename Alpha>
double drifts_found(Alpha&& alpha_of) {
  int found = 0;
  for (int trial = 0; trial < 400; ++trial) found += drift_p(run_with_thirds(alpha_of, trial)) < 0.05;
  return found / 400.0;
}

TEST(IidTests, HoldTheirLevelOnIidRounds) {
  EXPECT_NEAR(rejections(iid_process(.7), positions_p), 0.05, 0.035);
  EXPECT_NEAR(rejections(iid_process(.7), serial_p), 0.05, 0.035);
  EXPECT_NEAR(rejections(iid_process(.7), prompts_p), 0.05, 0.035);
  EXPECT_NEAR(rejections(iid_process(.7), drift_p), 0.05, 0.035);
}

TEST(IidTests, ADriftWithinTextsIsFoundAndDifferencesBetweenPromptsAreNot) {
  EXPECT_GT(drifts_found([](int, int third) { return .77 - .07 * third; }), 0.9) << "alpha falls";
  EXPECT_GT(drifts_found([](int, int third) { return third == 1 ? .6 : .75; }), 0.9) << "falls and rises";
  EXPECT_NEAR(drifts_found([](int prompt, int) { return prompt % 2 ? .9 : .4; }), 0.05, 0.035);
  const auto drift = alpha_drift(run_with_thirds([](int, int third) { return .8 - .2 * third; }, 1));
  EXPECT_NEAR(drift->alpha[0], .8, .06);
  EXPECT_NEAR(drift->alpha[2], .4, .08);
}

TEST(IidTests, DriftByHand) {
  const auto prompt_of = [](std::vector<int> accepted) {
    PromptRounds prompt;
    for (const int one : accepted)
      prompt.push_back({.drafted = 1, .accepted = one, .rejected = one == 0, .emitted = 1 + one});
    return prompt;
  };
  // The thirds accept 3, 2 and 1 of 3 tokens. Pearson's chi2 of this table is 3. The statistic is (n - 1) / n
  // times this, with n = 9.
  std::vector<PromptRounds> run = {prompt_of({1, 1, 1, 1, 0, 1, 0, 1, 0})};
  const auto drift = alpha_drift(run);
  EXPECT_DOUBLE_EQ(drift->alpha[1], 2 / 3.0);
  EXPECT_EQ(drift->chi2.degrees, 2);
  EXPECT_NEAR(drift->chi2.statistic, 3 * 8 / 9.0, 1e-12);
  EXPECT_NEAR(drift->chi2.p_value, std::exp(-3 * 4 / 9.0), 1e-12);
  // A prompt that accepts everything has no drift, and an opposite drift cancels.
  run.push_back(prompt_of({1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_NEAR(alpha_drift(run)->chi2.statistic, 3 * 8 / 9.0, 1e-12);
  run.push_back(prompt_of({0, 1, 0, 1, 0, 1, 1, 1, 1}));
  EXPECT_NEAR(alpha_drift(run)->chi2.statistic, 0, 1e-12);
  // With two steps, the last third is empty.
  EXPECT_FALSE(alpha_drift(std::vector<PromptRounds>{prompt_of({1, 0}), prompt_of({0, 1})}));
}

TEST(IidTests, FindTheDeviationsThatTheyTest) {
  EXPECT_GT(rejections(positional_process({.8, .7, .6, .6}), positions_p), 0.9);
  EXPECT_GT(rejections(switching_process({.9, .4}, .9), serial_p), 0.9);
  std::vector<PromptRounds> run;
  for (int prompt = 0; prompt < 20; ++prompt) {
    run.push_back(simulate_rounds(iid_process(prompt % 2 ? .8 : .6), 4, 80, prompt));
  }
  EXPECT_LT(prompts_p(run), 1e-6);
  EXPECT_GT(prompt_dispersion(run)->factor, 3);
  // Prompts that differ must not be mistaken for serial correlation.
  EXPECT_GT(serial_p(run), 1e-3);
}

TEST(IidTests, SerialCorrelationOfAnAlternatingRun) {
  PromptRounds prompt;
  for (int i = 0; i < 1000; ++i) {
    prompt.push_back({.drafted = 2, .accepted = i % 2 * 2, .rejected = i % 2 == 0, .emitted = i % 2 * 2 + 1});
  }
  const std::vector<PromptRounds> run = {prompt};
  EXPECT_NEAR(serial_correlation(run)->lag1, -1, 0.003);
  EXPECT_EQ(serial_correlation(run, 3)->ljung_box.degrees, 3);
  EXPECT_NEAR(serial_correlation(run, 1)->ljung_box.statistic, 1000, 5);
}

TEST(IidTests, DispersionByHand) {
  // 8 of 10 and 4 of 8, pooled 12 of 18: (8 - 6.667)^2 / 2.222 + (4 - 5.333)^2 / 1.778 = 1.8.
  std::vector<PromptRounds> run(2);
  for (int i = 0; i < 8; ++i) run[0].push_back({.drafted = 1, .accepted = 1, .emitted = 2});
  for (int i = 0; i < 2; ++i) run[0].push_back({.drafted = 1, .accepted = 0, .rejected = true, .emitted = 1});
  for (int i = 0; i < 4; ++i) run[1].push_back({.drafted = 1, .accepted = 1, .emitted = 2});
  for (int i = 0; i < 4; ++i) run[1].push_back({.drafted = 1, .accepted = 0, .rejected = true, .emitted = 1});
  const auto dispersion = prompt_dispersion(run);
  EXPECT_NEAR(dispersion->chi2.statistic, 1.8, 1e-12);
  EXPECT_EQ(dispersion->chi2.degrees, 1);
  EXPECT_NEAR(dispersion->factor, 1.8, 1e-12);
  EXPECT_NEAR(dispersion->chi2.p_value, std::erfc(std::sqrt(0.9)), 1e-12);
}

TEST(IidTests, PositionStatisticByHand) {
  // Position 1: 8 of 10, position 2: 4 of 8; pooled 12 of 18.
  std::vector<PromptRounds> run(1);
  for (int i = 0; i < 4; ++i) run[0].push_back({.drafted = 2, .accepted = 2, .emitted = 3});
  for (int i = 0; i < 4; ++i) run[0].push_back({.drafted = 2, .accepted = 1, .rejected = true, .emitted = 2});
  for (int i = 0; i < 2; ++i) run[0].push_back({.drafted = 2, .accepted = 0, .rejected = true, .emitted = 1});
  const double a = 12 / 18.0;
  const double g2 = 2 * (8 * std::log(.8 / a) + 2 * std::log(.2 / (1 - a)) + 4 * std::log(.5 / a) +
                         4 * std::log(.5 / (1 - a)));
  EXPECT_NEAR(iid_position_test(run)->statistic, g2, 1e-12);
  EXPECT_EQ(iid_position_test(run)->degrees, 1);
  EXPECT_NEAR(iid_position_test(run)->p_value, std::erfc(std::sqrt(g2 / 2)), 1e-12);
}

TEST(Estimators, NothingDraftedIsAbsentNotZero) {
  const std::vector<PromptRounds> none, autoregressive = {{{.emitted = 1}, {.emitted = 1}}};
  for (const auto& run : {none, autoregressive}) {
    EXPECT_FALSE(alpha_mle(run));
    EXPECT_FALSE(alpha_min(run));
    EXPECT_FALSE(draft_utilization(run));
    EXPECT_FALSE(tokens_over_eq1(run));
    EXPECT_FALSE(estimators_agree(run));
    EXPECT_FALSE(iid_position_test(run));
    EXPECT_FALSE(serial_correlation(run));
    EXPECT_FALSE(prompt_dispersion(run));
    EXPECT_FALSE(alpha_drift(run));
    EXPECT_TRUE(acceptance_by_position(run).empty());
  }
  // If everything is accepted, alpha is exactly 1, and there is nothing to test.
  const auto perfect = simulated(iid_process(1), 3, 4, 20, 1);
  EXPECT_EQ(alpha_mle(perfect)->value, 1);
  EXPECT_EQ(tokens_over_eq1(perfect)->value, 1);
  EXPECT_EQ(iid_position_test(perfect)->statistic, 0);
  EXPECT_FALSE(prompt_dispersion(perfect));
  EXPECT_FALSE(alpha_drift(perfect));
}

TEST(Estimators, ImpossibleRoundsThrow) {
  for (const Round& bad :
       {Round{.drafted = 2, .accepted = 2, .rejected = true, .emitted = 3}, Round{.drafted = -1},
        Round{.drafted = 2, .accepted = -1}, Round{.drafted = 2, .accepted = 1, .emitted = 3},
        Round{.drafted = 2, .accepted = 1, .emitted = 2, .expected_sum = 1.5}}) {
    const std::vector<PromptRounds> run = {{bad}};
    EXPECT_THROW(alpha_mle(run), Error);
    EXPECT_THROW(alpha_drift(run), Error);
    EXPECT_THROW(acceptance_by_position(run), Error);
  }
  EXPECT_THROW(serial_correlation(small_run(), 0), Error);
  EXPECT_THROW(expected_draft_utilization(.5, 0), Error);
}

}  // namespace
}  // namespace speclab::theory::alpha_estimators_test
