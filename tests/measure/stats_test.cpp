#include "core/measure/stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/base/error.h"

namespace speclab::stats::stats_test {
namespace {

using testing::DoubleNear;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double uniform(std::mt19937_64& random) { return (random() >> 11) * 0x1p-53; }

TEST(Stats, MeanVarianceMedianQuantile) {
  const std::vector<double> odd = {5, 1, 3}, even = {4, 1, 2, 10}, one = {7};
  EXPECT_EQ(mean(odd), 3);
  EXPECT_EQ(variance(odd), 4);
  EXPECT_EQ(median(odd), 3);
  EXPECT_EQ(median(even), 3);
  EXPECT_EQ(median(one), 7);
  EXPECT_EQ(quantile(even, 0), 1);
  EXPECT_EQ(quantile(even, 1), 10);
  EXPECT_DOUBLE_EQ(quantile(even, 0.25), 1.75);  // numpy.quantile([4, 1, 2, 10], .25)
  EXPECT_DOUBLE_EQ(quantile(even, 0.9), 8.2);
}

TEST(Stats, BadSamplesThrow) {
  const std::vector<double> none, one = {1}, nan = {1, kNaN};
  EXPECT_THROW(mean(none), Error);
  EXPECT_THROW(median(none), Error);
  EXPECT_THROW(variance(one), Error);
  EXPECT_THROW(mean(nan), Error);
  EXPECT_THROW(quantile(one, 1.5), Error);
}

TEST(Wilson, KnownValues) {
  // R: prop.test(8, 10, correct = FALSE)$conf.int = 0.4901625 0.9433178
  const auto interval = wilson_interval(8, 10);
  EXPECT_NEAR(interval->lo, 0.4901625, 1e-6);
  EXPECT_NEAR(interval->hi, 0.9433178, 1e-6);
  EXPECT_EQ(wilson_interval(0, 10)->lo, 0);
  EXPECT_NEAR(wilson_interval(0, 10)->hi, 0.2775, 1e-4);
  EXPECT_EQ(wilson_interval(10, 10)->hi, 1);
  EXPECT_NEAR(wilson_interval(10, 10)->lo, 0.7225, 1e-4);
  EXPECT_FALSE(wilson_interval(0, 0));
  EXPECT_LT(wilson_interval(8, 10, 0.5)->hi, interval->hi);
  EXPECT_THROW(wilson_interval(11, 10), Error);
  EXPECT_THROW(wilson_interval(1, 10, 1), Error);
}

TEST(Bootstrap, IsAPureFunctionOfDataAndSeed) {
  const std::vector<double> data = {1, 4, 2, 8, 5, 7};
  auto average = [&](auto clusters) {
    double sum = 0;
    for (auto i : clusters) sum += data[i];
    return sum / clusters.size();
  };
  const auto first = bootstrap_interval(6, average), again = bootstrap_interval(6, average);
  const auto other = bootstrap_interval(6, average, {.resamples = 2000, .seed = 2, .level = 0.95});
  EXPECT_EQ(first->lo, again->lo);
  EXPECT_EQ(first->hi, again->hi);
  EXPECT_TRUE(first->lo != other->lo || first->hi != other->hi);
  // These values must never change: another random stream would change every published interval.
  const auto few = bootstrap_interval(6, average, {.resamples = 5, .seed = 1, .level = 0.5});
  EXPECT_THAT(few->lo, DoubleNear(10 / 3., 1e-12));
  EXPECT_THAT(few->hi, DoubleNear(4.0, 1e-12));
}

TEST(Bootstrap, DrawsClustersWithRepetitionAndCoversTheMean) {
  std::mt19937_64 random(5);
  int covered = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> data(40);
    for (double& value : data) value = uniform(random);
    const auto interval = bootstrap_interval(40,
                                             [&](auto clusters) {
                                               EXPECT_EQ(clusters.size(), 40u);
                                               double sum = 0;
                                               for (auto i : clusters) sum += data.at(i);
                                               return sum / 40;
                                             },
                                             {.resamples = 400, .seed = 9, .level = 0.9});
    covered += interval->lo <= 0.5 && 0.5 <= interval->hi;
  }
  EXPECT_NEAR(covered / 300.0, 0.9, 0.055);  // 3 standard deviations
}

TEST(Bootstrap, LeavesOutUndefinedResamples) {
  auto first_only = [](auto clusters) { return clusters[0] == 0 ? kNaN : 1.0; };
  EXPECT_EQ(bootstrap_interval(10, first_only)->hi, 1);
  EXPECT_FALSE(bootstrap_interval(10, [](auto) { return kNaN; }));
  EXPECT_FALSE(bootstrap_interval(1, [](auto) { return 1.0; }));
  EXPECT_THROW(bootstrap_interval(5, first_only, {.resamples = 0}), Error);
  EXPECT_THROW(bootstrap_interval(5, first_only, {.level = 0}), Error);
}

TEST(RatioOfSums, WeighsPromptsByTheirDenominator) {
  const std::vector<double> tokens = {100, 10, 50}, seconds = {2, 1, 1};
  const auto ratio = ratio_of_sums(tokens, seconds);
  EXPECT_DOUBLE_EQ(ratio->value, 40);
  EXPECT_NEAR(ratio->ci->lo, 10, 1e-12);  // 3 of 81 resamples are one prompt three times
  EXPECT_NEAR(ratio->ci->hi, 50, 1e-12);
  const std::vector<double> none, zero = {0, 0, 0}, negative = {1, -1, 1}, nan = {1, kNaN, 1};
  EXPECT_FALSE(ratio_of_sums(none, none));
  EXPECT_FALSE(ratio_of_sums(tokens, zero));
  EXPECT_EQ(ratio_of_sums(zero, seconds)->value, 0);
  EXPECT_THROW(ratio_of_sums(tokens, none), Error);
  EXPECT_THROW(ratio_of_sums(tokens, negative), Error);
  EXPECT_THROW(ratio_of_sums(nan, seconds), Error);
}

TEST(Stats, TrimmedMeanForgetsTheEnds) {
  std::vector<double> sample(40, 5);
  sample[3] = 1000;
  sample[30] = -7;
  EXPECT_EQ(trimmed_mean(sample, 0.05), 5);
  EXPECT_DOUBLE_EQ(trimmed_mean(sample, 0.02), mean(sample)) << "not one value is 2 % of them";
  EXPECT_EQ(trimmed_mean(std::vector<double>{3, 1, 8}, 0.4), 3);
  EXPECT_EQ(trimmed_mean(std::vector<double>{3}, 0.4), 3);
}

TEST(PairedRatio, IsTheMedianOverRepeatsOfTheRatioOfSums) {
  const Times base = {{10, 11, 50}, {20, 22, 20}}, test = {{5, 5, 5}, {10, 5, 5}};
  const Ratio ratio = paired_ratio(base, test);
  EXPECT_THAT(ratio.repeats, testing::ElementsAre(2, 3.3, 7));
  EXPECT_EQ(ratio.value, 3.3);
  EXPECT_LE(ratio.ci->lo, 3.3);
  EXPECT_GE(ratio.ci->hi, 3.3);
}

TEST(PairedRatio, IntervalKeepsPairsTogether) {
  // Prompts differ by a factor of 100, but every one is twice as fast: the paired interval has no width.
  Times base, test;
  for (int prompt = 0; prompt < 20; ++prompt) {
    base.push_back({1.0 + prompt * 5, 1.0 + prompt * 5});
    test.push_back({base.back()[0] / 2, base.back()[1] / 2});
  }
  const Ratio ratio = paired_ratio(base, test);
  EXPECT_DOUBLE_EQ(ratio.value, 2);
  EXPECT_NEAR(ratio.ci->lo, 2, 1e-12);
  EXPECT_NEAR(ratio.ci->hi, 2, 1e-12);
}

TEST(PairedRatio, IntervalCoversTheTrueRatio) {
  std::mt19937_64 random(17);
  int covered = 0;
  for (int trial = 0; trial < 200; ++trial) {
    Times base, test;
    for (int prompt = 0; prompt < 30; ++prompt) {
      const double length = 1 + 3 * uniform(random), gain = 1.3 * (0.8 + 0.4 * uniform(random));
      base.push_back({});
      test.push_back({});
      for (int repeat = 0; repeat < 3; ++repeat) {
        test.back().push_back(length * (0.99 + 0.02 * uniform(random)));
        base.back().push_back(length * gain * (0.99 + 0.02 * uniform(random)));
      }
    }
    const Ratio ratio = paired_ratio(base, test, {.resamples = 300});
    covered += ratio.ci->lo <= 1.3 && 1.3 <= ratio.ci->hi;
  }
  EXPECT_NEAR(covered / 200.0, 0.95, 0.05);
}

TEST(PairedRatio, UnpairedTimesThrow) {
  EXPECT_THROW(paired_ratio({{1, 2}}, {{1}}), Error);
  EXPECT_THROW(paired_ratio({{1}, {2}}, {{1}}), Error);
  EXPECT_THROW(paired_ratio({{1}}, {{1}, {2}}), Error);
  EXPECT_THROW(paired_ratio({{1}, {2, 3}}, {{1}, {2, 3}}), Error);
  EXPECT_THROW(paired_ratio({}, {}), Error);
  EXPECT_THROW(paired_ratio({{1}}, {{0}}), Error);
  EXPECT_THROW(paired_ratio({{kNaN}}, {{1}}), Error);
  EXPECT_FALSE(paired_ratio({{2}}, {{1}}).ci);
}

TEST(Speedup, IsOfTimePerToken) {
  // The second prompt's text stops half way: half the tokens in half the time, and a little faster per token.
  const Decoded base{{{4}, {4}}, {{40}, {40}}}, test{{{3}, {1.5}}, {{40}, {20}}};
  const auto ratio = paired_speedup(base, test);
  ASSERT_TRUE(ratio);
  EXPECT_DOUBLE_EQ(ratio->value, .1 / (4.5 / 60));
  EXPECT_EQ(ratio->prompts, 2u);
  ASSERT_TRUE(ratio->ci);
  EXPECT_DOUBLE_EQ(ratio->ci->lo, 4. / 3);
  EXPECT_DOUBLE_EQ(ratio->ci->hi, 4. / 3) << "each prompt has this ratio";
}

TEST(Speedup, IsTheRatioOfTimesForAsManyTokens) {
  const Times base = {{1.1, 1.7}, {.3, .9}, {2.2, 1.3}}, test = {{.7, .9}, {.4, .3}, {1.9, 1.1}},
              tokens = {{7, 7}, {3, 3}, {9, 9}};
  const Ratio plain = paired_ratio(base, test);
  const auto ratio = paired_speedup({base, tokens}, {test, tokens});
  ASSERT_TRUE(ratio && ratio->ci && plain.ci);
  EXPECT_EQ(ratio->value, plain.value) << "bit for bit";
  EXPECT_EQ(ratio->repeats, plain.repeats);
  EXPECT_EQ(ratio->ci->lo, plain.ci->lo);
  EXPECT_EQ(ratio->ci->hi, plain.ci->hi);
}

TEST(Speedup, APromptWithoutTokensSaysNothing) {
  const Decoded base{{{4}, {4}}, {{40}, {40}}};
  const auto ratio = paired_speedup(base, {{{2}, {0}}, {{40}, {0}}});
  ASSERT_TRUE(ratio);
  EXPECT_DOUBLE_EQ(ratio->value, 2);
  EXPECT_FALSE(paired_speedup(base, {{{0}, {0}}, {{0}, {0}}})) << "nothing was decoded";
  EXPECT_THROW(paired_speedup(base, {{{2}}, {{40}}}), Error);
  EXPECT_THROW(paired_speedup(base, {{{2}, {2}}, {{40}, {-1}}}), Error);
  EXPECT_THROW(paired_speedup(base, {{{2}, {kNaN}}, {{40}, {40}}}), Error);
}

TEST(Noise, FloorIsTheSpreadOfEqualCases) {
  const std::vector<Times> cases = {{{1, 1.02}, {3, 3.06}}};
  EXPECT_NEAR(*noise_floor(cases), 0.02, 1e-12);
  const std::vector<Times> single = {{{1}, {3}}};
  EXPECT_FALSE(noise_floor(single));
  EXPECT_FALSE(noise_floor({}));
  const std::vector<Times> nothing = {{{0, 0}}};
  EXPECT_FALSE(noise_floor(nothing)) << "texts that ended with their first token took no time";
}

TEST(Verdict, ComparesAnIntervalWithTheNoiseBand) {
  EXPECT_EQ(verdict({1.03, 1.2}, 0.02), Verdict::kFaster);
  EXPECT_EQ(verdict({0.8, 0.97}, 0.02), Verdict::kSlower);
  EXPECT_EQ(verdict({0.985, 1.015}, 0.02), Verdict::kSame);
  EXPECT_EQ(verdict({1.01, 1.2}, 0.02), Verdict::kUnclear);
  EXPECT_EQ(verdict({0.9, 1.1}, 0.02), Verdict::kUnclear);
  EXPECT_EQ(verdict({1.001, 1.002}, 0), Verdict::kFaster);
  EXPECT_EQ(to_string(Verdict::kFaster), "faster");
  EXPECT_EQ(to_string(Verdict::kSlower), "slower");
  EXPECT_EQ(to_string(Verdict::kSame), "same");
  EXPECT_EQ(to_string(Verdict::kUnclear), "unclear");
  EXPECT_THROW(verdict({1.2, 1.1}, 0.02), Error);
  EXPECT_THROW(verdict({1, 1.1}, kNaN), Error);
}

}  // namespace
}  // namespace speclab::stats::stats_test
