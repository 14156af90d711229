#include "core/theory/step_costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/base/error.h"

namespace speclab::theory::step_costs_test {
namespace {

TEST(RowTimes, InterpolatesAndContinuesWithTheLastSlope) {
  const RowTimes times(std::map<int, double>{{1, 10}, {2, 13}, {4, 15}, {8, 19}});
  EXPECT_EQ(times.at(1), 10);
  EXPECT_EQ(times.at(2), 13);
  EXPECT_EQ(times.at(3), 14);
  EXPECT_EQ(times.at(6), 17);
  EXPECT_EQ(times.at(12), 23);
  EXPECT_DOUBLE_EQ(times.ratio(3), 1.4);
  EXPECT_EQ(times.largest_measured(), 8);
  EXPECT_FALSE(times.flat());
  EXPECT_EQ(RowTimes(std::map<int, double>{{1, 10}, {2, 9}}).at(5), 9);
  EXPECT_EQ(RowTimes(7).at(100), 7);
  EXPECT_TRUE(RowTimes().flat());
  EXPECT_EQ(RowTimes().ratio(9), 1);
}

TEST(RowTimes, AMeanNumberOfRowsLiesBetweenWholeOnes) {
  const RowTimes times({{1, 10}, {2, 12}, {4, 20}});
  EXPECT_DOUBLE_EQ(times.at_mean(1), 10);
  EXPECT_DOUBLE_EQ(times.at_mean(1.25), 10.5);
  EXPECT_DOUBLE_EQ(times.at_mean(2.5), 14);
  EXPECT_DOUBLE_EQ(times.at_mean(3), 16);
  EXPECT_DOUBLE_EQ(times.at_mean(5.5), 26) << "with the last slope";
  EXPECT_THROW(times.at_mean(.5), Error);
  // Only the whole numbers of rows next to the mean are asked for.
  std::vector<int> asked;
  const auto time = [&](int rows) {
    asked.push_back(rows);
    return 100.0 * rows;
  };
  EXPECT_DOUBLE_EQ(between_whole_rows(7.5, time), 750);
  EXPECT_DOUBLE_EQ(between_whole_rows(9, time), 900);
  EXPECT_EQ(asked, (std::vector<int>{7, 8, 9}));
}

TEST(RowTimes, MonotonePoolsWhatFalls) {
  const RowTimes noisy(std::map<int, double>{{1, 12}, {2, 10}, {3, 11}, {5, 15}, {6, 14}, {9, 20}});
  const RowTimes times = noisy.monotone();
  for (const int rows : {1, 2, 3}) EXPECT_EQ(times.at(rows), 11) << rows;
  for (const int rows : {5, 6}) EXPECT_EQ(times.at(rows), 14.5) << rows;
  EXPECT_EQ(times.at(9), 20);
  // 1 is pooled with 5 before it, and their mean with 4.
  const RowTimes chain = RowTimes(std::map<int, double>{{1, 4}, {2, 5}, {3, 1}}).monotone();
  for (const int rows : {1, 2, 3}) EXPECT_DOUBLE_EQ(chain.at(rows), 10. / 3) << rows;
  EXPECT_EQ(RowTimes(7).monotone().at(3), 7);
}

TEST(RowTimes, BadTablesThrow) {
  using Table = std::map<int, double>;
  EXPECT_THROW(RowTimes(Table{}), Error);
  EXPECT_THROW(RowTimes(Table{{2, 1}}), Error);
  EXPECT_THROW(RowTimes(Table{{0, 1}, {1, 1}}), Error);
  EXPECT_THROW(RowTimes(Table{{1, 1}, {2, -1}}), Error);
  EXPECT_THROW(RowTimes(0), Error);
  EXPECT_THROW(RowTimes().at(0), Error);
}

TEST(Positional, ConstantAcceptanceGivesEq1) {
  for (double alpha : {0.0, 0.3, 0.9, 1.0}) {
    const std::vector<double> acceptance(6, alpha);
    EXPECT_NEAR(positional_expected_tokens(acceptance), expected_tokens(alpha, 6), 1e-13);
  }
  EXPECT_EQ(positional_expected_tokens({}), 1);
  const std::vector<double> acceptance = {0.5, 0.8, 0.5};
  EXPECT_DOUBLE_EQ(positional_expected_tokens(acceptance), 1 + .5 + .4 + .2);
  EXPECT_THROW(positional_expected_tokens(std::vector<double>{1.1}), Error);
}

TEST(Positional, IsAnIdentityForMeasuredAcceptanceOfAnyProcess) {
  // A process far from i.i.d.: acceptance depends on the position and on the round before.
  std::mt19937_64 random(2);
  const int gamma = 4, rounds = 1000;
  std::vector<double> accepted(gamma), tested(gamma);
  double tokens = 0;
  int last = 0;
  for (int round = 0; round < rounds; ++round) {
    int i = 0;
    for (; i < gamma; ++i) {
      tested[i] += 1;
      if ((random() >> 11) * 0x1p-53 >= 0.3 + 0.1 * i + 0.08 * last) break;
      accepted[i] += 1;
    }
    last = i;
    tokens += i + 1;
  }
  for (int i = 0; i < gamma; ++i) accepted[i] /= tested[i];
  EXPECT_NEAR(positional_expected_tokens(accepted), tokens / rounds, 1e-12);
}

TEST(Mixture, OneLengthIsTheChainAndManyAreTheMean) {
  EXPECT_DOUBLE_EQ(mixture_expected_tokens(0.7, constant_draft_length(5)), expected_tokens(0.7, 5));
  EXPECT_NEAR(mixture_speedup(0.7, 0.05, constant_draft_length(5), RowTimes()),
              walltime_improvement(0.7, 5, 0.05), 1e-15);
  const DraftLengths lengths = {1, 0, 3};  // a quarter of the steps draft nothing
  EXPECT_EQ(mean_draft_length(lengths), 1.5);
  EXPECT_DOUBLE_EQ(mixture_expected_tokens(0.5, lengths), (1 + 3 * 1.75) / 4);
  const RowTimes target(std::map<int, double>{{1, 2}, {3, 3}});
  EXPECT_DOUBLE_EQ(mixture_speedup(0.5, 0.1, lengths, target), (1 + 3 * 1.75) / (1 + 3 * (0.2 + 1.5)));
  EXPECT_THROW(mixture_expected_tokens(0.5, {}), Error);
  EXPECT_THROW(mixture_expected_tokens(0.5, {0, 0}), Error);
  EXPECT_THROW(mixture_expected_tokens(0.5, {1, -1}), Error);
}

TEST(Mixture, AnOracleLengthReachesTheLimit) {
  // Leviathan: a gamma chosen with hindsight for every step reaches 1 / (1 - alpha) tokens per call.
  DraftLengths lengths(400);
  for (int g = 0; g < 400; ++g) lengths[g] = 1;
  EXPECT_LT(mixture_expected_tokens(0.8, lengths), expected_tokens_limit(0.8));
  EXPECT_NEAR(mixture_expected_tokens(0.8, constant_draft_length(400)), expected_tokens_limit(0.8), 1e-12);
}

TEST(OptimalGamma, WithFlatCostsEqualsLeviathans) {
  for (double alpha : {0.1, 0.5, 0.8, 0.95}) {
    for (double c : {0.01, 0.1, 0.4}) {
      const auto general = optimal_gamma_at_costs(alpha, c, RowTimes(), 120), paper = optimal_gamma(alpha, c);
      EXPECT_EQ(general.gamma, paper.gamma);
      EXPECT_DOUBLE_EQ(general.speedup, paper.speedup);
      const auto positional = optimal_gamma_positional(std::vector<double>(120, alpha), c, RowTimes());
      EXPECT_EQ(positional.gamma, paper.gamma);
    }
  }
}

TEST(OptimalGamma, FindsTheSecondPeakOfAKinkedCost) {
  // Rows are cheap again after a step at two rows (a tile): gamma 1 is bad and gamma 7 good.
  const RowTimes tile(std::map<int, double>{{1, 1}, {2, 1.8}, {8, 1.8}, {9, 5}});
  const auto best = optimal_gamma_at_costs(0.75, 0.01, tile, 20);
  EXPECT_EQ(best.gamma, 7);
  EXPECT_LT(walltime_improvement(0.75, 1, 0.01, tile.ratio(2)), 1);
  EXPECT_TRUE(optimal_gamma_at_costs(0.75, 0.01, tile, 7).at_limit);
  EXPECT_EQ(optimal_gamma_at_costs(0.1, 0.5, RowTimes(), 20).gamma, 0);
  EXPECT_EQ(optimal_gamma_positional(std::vector<double>{0.9, 0.0, 0.9}, 0.05, RowTimes()).gamma, 1);
}

TEST(MeasuredCosts, IsTauOverTheStep) {
  EXPECT_DOUBLE_EQ(
      measured_cost_speedup(2.5, {.t_ar = 10, .draft = 2, .target = 15, .accept = 1, .other = 2}), 1.25);
  // With Leviathan's idealised costs it is 3.8.
  EXPECT_DOUBLE_EQ(measured_cost_speedup(expected_tokens(0.8, 4), {.t_ar = 1, .draft = 0.2, .target = 1}),
                   walltime_improvement(0.8, 4, 0.05));
  EXPECT_THROW(measured_cost_speedup(2, {.t_ar = 0, .target = 1}), Error);
  EXPECT_THROW(measured_cost_speedup(2, {.t_ar = 1, .target = 0}), Error);
  EXPECT_THROW(measured_cost_speedup(2, {.t_ar = 1, .draft = -1, .target = 1}), Error);
}

TEST(Chen, PublishedReports) {
  // Chinchilla 70B, 14.1 ms, with the 4B draft, 1.8 ms, K = 4 (Chen et al. 2023), and GPT-2 XL / small, 73.3
  // / 11.9 ms.
  EXPECT_NEAR(chen_ratio(.8, 4, 1.8, 14.1), 2.648, 5e-4);
  EXPECT_NEAR(chen_ratio(.62, 4, 1.8, 14.1), 2.052, 5e-4);
  EXPECT_NEAR(chen_ratio(.8125, 4, 11.9, 73.3), 2.463, 5e-4);
  EXPECT_NEAR(16.8244 / 7.9031, 2.129, 5e-4);
  EXPECT_EQ(chen_limit(.8125, 4), 4.0625);
  EXPECT_DOUBLE_EQ(chen_r(4, 4), .8);
}

TEST(Chen, IsTheMeasuredCostFormulaOfAnIdealStep) {
  const double tau = expected_tokens(0.7, 4), c = 0.1;
  EXPECT_DOUBLE_EQ(chen_ratio(chen_r(tau, 4), 4, c, 1), walltime_improvement(0.7, 4, c));
  EXPECT_DOUBLE_EQ(chen_ratio(chen_r(tau, 4), 4, 0, 1), chen_limit(chen_r(tau, 4), 4));
  EXPECT_THROW(chen_ratio(1.1, 4, 1, 1), Error);
  EXPECT_THROW(chen_ratio(.5, -1, 1, 1), Error);
  EXPECT_THROW(chen_r(6, 4), Error);
}

TEST(Lookahead, PublishedAblation) {
  // LLaMA-2-7B on MT-Bench, N = 5, W = G (Fu et al. 2024): fitted alpha .425 and f 3.106.
  for (const auto& [w, s] : {std::pair{15, 1.979}, {10, 1.867}, {7, 1.762}}) {
    EXPECT_NEAR(lookahead_step_compression(lookahead_expected_tokens(.425, 4, w), 3.106), s, 5e-4);
  }
  EXPECT_NEAR(lookahead_expected_tokens(.6, 5, 1), expected_tokens(.6, 5), 1e-13);
  EXPECT_EQ(lookahead_expected_tokens(.6, 5, 0), 1);
  EXPECT_EQ(lookahead_expected_tokens(1, 5, 3), 6);
  EXPECT_THROW(lookahead_step_compression(0.5, 2), Error);
  EXPECT_THROW(lookahead_step_compression(2, 0.5), Error);
}

TEST(RowTimes, AfterDraftingOnlyTheRestIsLeft) {
  const RowTimes times({{1, 10.0}, {4, 16.0}, {8, 40.0}}), rest = times.after_drafting(.25);
  EXPECT_DOUBLE_EQ(rest.at(1), 10) << "without a draft the verification is a whole forward";
  EXPECT_DOUBLE_EQ(rest.at(4), .25 * 10 + .75 * 16);
  EXPECT_DOUBLE_EQ(rest.at(6), .25 * 10 + .75 * 28);
  EXPECT_DOUBLE_EQ(rest.at(12), .25 * 10 + .75 * 64);
  EXPECT_DOUBLE_EQ(times.after_drafting(0).at(8), 40);
  EXPECT_THROW(times.after_drafting(1.1), Error);
}

}  // namespace
}  // namespace speclab::theory::step_costs_test
