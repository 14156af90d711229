#include "core/decoding/rows/coins.h"

#include <gtest/gtest.h>

#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/decoding/rows/distribution.h"

namespace speclab::coins_test {
namespace {

/// P(chi^2 >= the observed value) of counts with equal expectations.
double p_value(const std::vector<double>& observed, const std::vector<double>& expected) {
  double chi2 = 0;
  for (std::size_t i = 0; i < observed.size(); ++i)
    chi2 += std::pow(observed[i] - expected[i], 2) / expected[i];
  const boost::math::chi_squared law(static_cast<double>(observed.size() - 1));
  return boost::math::cdf(boost::math::complement(law, chi2));
}

// Known answers of Random123 (kat_vectors, philox4x32 10; Salmon et al. 2011).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Coins, AreAFunctionOfTheirAddress) {
  const Coins coins(1, 2), same(1, 2);
  std::set<double> values;
  const Coins::Address address{5, Purpose::accept, 3};
  EXPECT_EQ(coins.uniform(address), same.uniform(address));
  values.insert(coins.uniform(address));
  values.insert(Coins(2, 2).uniform(address));
  values.insert(Coins(1, 3).uniform(address));
  values.insert(Coins(1 + (std::uint64_t{1} << 32), 2).uniform(address));
  values.insert(Coins(1, 2 + (std::uint64_t{1} << 32)).uniform(address));
  values.insert(coins.uniform({6, Purpose::accept, 3}));
  values.insert(coins.uniform({5 + (std::int64_t{1} << 32), Purpose::accept, 3}));
  values.insert(coins.uniform({5, Purpose::target, 3}));
  values.insert(coins.uniform({5, Purpose::accept, 4}));
  EXPECT_EQ(values.size(), 9u);
}

// These values must never change, so that a seed always gives the same text.
TEST(Coins, UniformNumbersAreTheTop53BitsOfTheDocumentedPhiloxWords) {
  const PhiloxCounter words = philox4x32({12, 0, 0, 0}, {11, 0});
  const PhiloxCounter w =
      philox4x32({3, static_cast<std::uint32_t>(Purpose::accept), 5, 1}, {words[0], words[1]});
  const std::uint64_t bits = (std::uint64_t{w[0]} << 21) + (w[1] >> 11);
  EXPECT_EQ(Coins(11, 12).uniform({5 + (std::int64_t{1} << 32), Purpose::accept, 3}),
            std::ldexp(static_cast<double>(bits), -53));
}

TEST(Coins, UniformNumbersAreUniformAndUncorrelatedAlongEachPartOfTheAddress) {
  const int n = 100000, bins = 50;
  for (int part = 0; part < 4; ++part) {
    std::vector<double> counts(bins), expected(bins, double(n) / bins), pairs(25),
        pairs_expected(25, (n - 1) / 25.0);
    double before = -1;
    for (int i = 0; i < n; ++i) {
      const Coins coins(1, part == 2 ? i : 0);
      const double u =
          part == 3 ? Coins(i, 0).uniform({0, Purpose::target, 0})
                    : coins.uniform({part == 0 ? i : 0, Purpose::draft, part == 1 ? std::uint32_t(i) : 0u});
      ASSERT_GE(u, 0);
      ASSERT_LT(u, 1);
      ++counts[static_cast<int>(u * bins)];
      if (before >= 0) ++pairs[static_cast<int>(u * 5) * 5 + static_cast<int>(before * 5)];
      before = u;
    }
    EXPECT_GT(p_value(counts, expected), 1e-3) << "part " << part;
    EXPECT_GT(p_value(pairs, pairs_expected), 1e-3) << "part " << part;
  }
}

TEST(Coins, BernoulliNeverAcceptsZeroAndAlwaysOne) {
  const Coins coins(3, 0);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    const Coins::Address address{i, Purpose::accept, 0};
    EXPECT_FALSE(coins.bernoulli(0, address));
    EXPECT_FALSE(coins.bernoulli(-1, address));
    EXPECT_TRUE(coins.bernoulli(1, address));
    EXPECT_TRUE(coins.bernoulli(7, address));
    accepted += coins.bernoulli(.3, address);
  }
  EXPECT_NEAR(accepted / 20000.0, .3, 4 * std::sqrt(.21 / 20000));
  EXPECT_THROW(coins.bernoulli(std::nan(""), {0, Purpose::accept, 0}), Bug);
}

TEST(Coins, CategoricalHasTheLawOfItsWeightsAndNeverPicksZero) {
  const Coins coins(4, 9);
  // The row is longer than a chunk of the search. The first, a middle and the last chunk have mass.
  std::vector<double> weights(3000, 0.0);
  const std::vector<std::pair<int, double>> heavy = {{1, .5}, {1500, 2}, {1501, 1}, {2999, .5}};
  for (const auto& [i, w] : heavy) weights[i] = w;
  const std::vector<float> floats(weights.begin(), weights.end());
  const int n = 40000;
  std::vector<double> counts(weights.size());
  for (int i = 0; i < n; ++i) {
    const std::size_t pick = coins.categorical(weights, {i, Purpose::target, 0});
    ASSERT_LT(pick, weights.size());
    ASSERT_GT(weights[pick], 0);
    ASSERT_EQ(pick, coins.categorical(floats, {i, Purpose::target, 0}));
    ++counts[pick];
  }
  std::vector<double> observed, expected;
  for (const auto& [i, w] : heavy) {
    observed.push_back(counts[i]);
    expected.push_back(n * w / 4);
  }
  EXPECT_GT(p_value(observed, expected), 1e-3);
  EXPECT_THROW(coins.categorical(std::vector<double>{0, 0}, {0, Purpose::target, 0}), Bug);
  EXPECT_THROW(coins.categorical(std::vector<double>{1, INFINITY}, {0, Purpose::target, 0}), Bug);
}

TEST(Coins, AScriptDecidesEveryBranchAndIsNotAskedForCertainOnes) {
  std::vector<std::vector<double>> asked;
  Coins::Script script = [&](std::span<const double> weights) {
    asked.emplace_back(weights.begin(), weights.end());
    return weights.size() - 1;
  };
  const Coins coins = Coins::scripted(&script);
  EXPECT_FALSE(coins.bernoulli(.25, {}));
  EXPECT_TRUE(coins.bernoulli(1, {}));
  EXPECT_FALSE(coins.bernoulli(0, {}));
  EXPECT_EQ(coins.categorical(std::vector<float>{1, 2, 3}, {}), 2u);
  EXPECT_EQ(asked, (std::vector<std::vector<double>>{{.25, .75}, {1, 2, 3}}));
  EXPECT_THROW(coins.uniform({}), Bug);
  std::vector<float> noise(4);
  EXPECT_THROW(coins.gumbel(0, 0, noise), Bug);
}

TEST(Gumbel, IsTheNegativeLogOfAnExponentialOfTheDocumentedPhiloxWord) {
  const Coins coins(11, 12);
  const PhiloxCounter words = philox4x32({12, 0, 0, 0}, {11, 0});
  const PhiloxKey key = {words[0], words[1]};
  const int n = 1000;
  std::vector<float> noise(n);
  coins.gumbel(77, 0, noise);
  for (int token = 0; token < n; ++token) {
    const auto index = static_cast<std::uint32_t>(16 * (token / 64) + token % 16);
    const PhiloxCounter w = philox4x32({index, static_cast<std::uint32_t>(Purpose::gumbel), 77, 0}, key);
    const double v = (w[(token % 64) / 16] + .5) / 4294967296.0;
    const double expected = -std::log(-std::log1p(-v));
    EXPECT_NEAR(noise[token], expected, 2e-6 * (1 + std::abs(expected))) << token;
  }
  std::vector<float> part(70);
  coins.gumbel(77, 333, part);
  for (int i = 0; i < 70; ++i) EXPECT_EQ(part[i], noise[333 + i]);
}

TEST(Gumbel, HasItsLawAndDiffersByPosition) {
  const Coins coins(5, 6);
  const int n = 200000, bins = 40;
  std::vector<float> noise(n), other(n);
  coins.gumbel(3, 0, noise);
  coins.gumbel(4, 0, other);
  std::vector<double> counts(bins), expected(bins, double(n) / bins);
  int equal = 0;
  for (int i = 0; i < n; ++i) {
    ++counts[std::min(bins - 1, static_cast<int>(std::exp(-std::exp(-double(noise[i]))) * bins))];
    equal += noise[i] == other[i];
  }
  EXPECT_GT(p_value(counts, expected), 1e-3);
  EXPECT_LT(equal, 10);
}

TEST(Gumbel, RaceIsTheArgmaxOfLogWeightPlusNoise) {
  const Coins coins(8, 0);
  for (int position = 0; position < 300; ++position) {
    const int vocab = 1 + position;
    std::vector<float> weights(vocab), noise(vocab);
    for (int i = 0; i < vocab; ++i) weights[i] = i % 5 == 1 ? 0.0f : static_cast<float>(std::exp(-(i % 7)));
    coins.gumbel(position, 0, noise);
    int best = -1;
    double best_score = -INFINITY;
    for (int i = 0; i < vocab; ++i) {
      const double score = std::log(double(weights[i])) + noise[i];
      if (score > best_score) {
        best = i;
        best_score = score;
      }
    }
    EXPECT_EQ(coins.race(position, weights), static_cast<std::size_t>(best));
  }
  EXPECT_EQ(coins.race(0, std::vector<float>(5, 0.0f)), 5u);
}

TEST(Gumbel, StreamsAreIndependentNoise) {
  const Coins coins(5, 6);
  const int n = 20000, streams = 3;
  std::vector<std::vector<float>> noise(streams, std::vector<float>(n));
  for (int k = 0; k < streams; ++k) coins.gumbel(3, 0, noise[k], k);
  for (int k = 1; k < streams; ++k) {
    double product = 0;  // correlation of the uniform numbers behind the noise
    const auto uniform = [](float g) { return std::exp(-std::exp(-double(g))) - .5; };
    for (int i = 0; i < n; ++i) product += uniform(noise[0][i]) * uniform(noise[k][i]);
    EXPECT_LT(std::abs(product) / n * 12, 4.5 / std::sqrt(n)) << k;
    EXPECT_NE(noise[k], noise[k - 1]);
  }
  std::vector<float> few(5, 1.0f);
  for (const int none : {-1, Coins::kMostStreams}) {
    EXPECT_THROW(coins.race(0, few, none), Bug) << none;
    EXPECT_THROW(coins.gumbel(0, 0, few, none), Bug) << none;
  }
}

// The token with the largest log weight + noise over all streams, and the arrival that race() reports.
TEST(Gumbel, AListTakesTheBestOfAllStreams) {
  const Coins coins(8, 0);
  for (int position = 0; position < 200; ++position) {
    const int vocab = 2 + position, streams = 1 + position % 5;
    std::vector<float> weights(vocab), noise(vocab);
    for (int i = 0; i < vocab; ++i) weights[i] = i % 5 == 1 ? 0.0f : static_cast<float>(std::exp(-(i % 7)));
    int best = -1;
    double best_score = -INFINITY;
    for (int k = 0; k < streams; ++k) {
      coins.gumbel(position, 0, noise, k);
      double score_of_stream = -INFINITY;
      for (int i = 0; i < vocab; ++i) {
        const double score = std::log(double(weights[i])) + noise[i];
        score_of_stream = std::max(score_of_stream, score);
        if (score > best_score) best = i, best_score = score;
      }
      float arrival = 0;
      coins.race(position, weights, k, &arrival);
      EXPECT_NEAR(-std::log(double(arrival)), score_of_stream, 1e-5 * (1 + std::abs(score_of_stream)));
    }
    Distribution row;
    row.assign_weights(std::vector<double>(weights.begin(), weights.end()));
    EXPECT_EQ(row.sample_coupled_list(coins, position, streams), best) << position;
  }
  float arrival = 0;
  EXPECT_EQ(coins.race(0, std::vector<float>(5, 0.0f), 1, &arrival), 5u);
  EXPECT_EQ(arrival, INFINITY);
}

}  // namespace
}  // namespace speclab::coins_test
