#include "core/decoding/rows/distribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "core/base/error.h"
#include "core/decoding/rows/row_kernels.h"

namespace speclab::distribution_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(int vocab, std::mt19937& random, double spread = 3) {
  std::normal_distribution<double> normal(0, spread);
  std::vector<float> logits(vocab);
  for (float& z : logits) z = static_cast<float>(normal(random));
  return logits;
}

/// Reference: temperature, top-k and top-p in double with a full sort.
std::vector<double> naive(const std::vector<float>& logits, const SamplingParams& params) {
  const std::size_t vocab = logits.size();
  std::vector<std::size_t> order(vocab);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  std::vector<double> p(vocab, 0.0);
  if (params.temperature == 0) {
    p[order[0]] = 1;
    return p;
  }
  std::size_t kept = vocab;
  if (params.top_k > 0) kept = std::min<std::size_t>(kept, params.top_k);
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i)
    sum += p[order[i]] = std::exp((double(logits[order[i]]) - logits[order[0]]) / params.temperature);
  double mass = 0;
  std::size_t prefix = 0;
  while (prefix < kept && (prefix == 0 || mass < params.top_p * sum)) mass += p[order[prefix++]];
  if (params.top_p >= 1) prefix = kept;
  sum = 0;
  for (std::size_t i = 0; i < vocab; ++i) sum += i < prefix ? p[order[i]] : (p[order[i]] = 0);
  for (double& w : p) w /= sum;
  return p;
}

Distribution standardise(const std::vector<float>& logits, const SamplingParams& params) {
  Distribution out;
  out.assign_logits(logits, params, {}, static_cast<int>(logits.size()));
  return out;
}

std::vector<double> probabilities(const Distribution& d) {
  std::vector<double> out;
  d.probabilities(out);
  return out;
}

std::vector<Token> support(const Distribution& d) {
  std::vector<Token> out;
  for (Token x = 0; x < d.vocab(); ++x) {
    if (d.prob(x) > 0) out.push_back(x);
  }
  return out;
}

TEST(Distribution, EqualsTheNaiveLawInDouble) {
  std::mt19937 random(1);
  Distribution reused;
  for (const int vocab : {1, 2, 5, 15, 16, 17, 63, 64, 65, 1000, 5003}) {
    for (const SamplingParams params : {SamplingParams{0, 0, 1},
                                        {1, 0, 1},
                                        {.6, 0, 1},
                                        {2.5, 0, 1},
                                        {1, 1, 1},
                                        {1, 5, 1},
                                        {1, 50, 1},
                                        {1, 4000, 1},
                                        {1, 0, .9},
                                        {1, 0, .1},
                                        {3, 0, .999},
                                        {.8, 40, .95},
                                        {1, 3, .5}}) {
      const std::vector<float> logits = random_logits(vocab, random);
      reused.assign_logits(logits, params, {}, vocab);
      const std::vector<double> expected = naive(logits, params), got = probabilities(reused);
      double sum = 0;
      for (int x = 0; x < vocab; ++x) {
        // error of exp and of its float argument (z - max) / T
        const double relative = 4e-7 + 1.2e-7 * (expected[x] > 0 ? -std::log(expected[x]) : 0);
        ASSERT_NEAR(got[x], expected[x], relative * expected[x] + 1e-30)
            << vocab << " k " << params.top_k << " p " << params.top_p;
        EXPECT_EQ(got[x], reused.prob(x));
        sum += got[x];
      }
      EXPECT_NEAR(sum, 1, 1e-12);
      EXPECT_EQ(reused.one_hot(), params.temperature == 0);
      EXPECT_EQ(reused.argmax(), std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
  }
}

TEST(Distribution, ExpIsAccurateOverItsRange) {
  std::vector<float> logits(20000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = -static_cast<float>(i) * 0.005f;
  std::vector<float> exps(logits.size());
  row_kernels::exp_row(logits, 0, 1, exps);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < -87) {
      EXPECT_EQ(exps[i], 0);
    } else {
      const double expected = std::exp(double(logits[i]));
      ASSERT_NEAR(exps[i], expected, 2e-7 * expected) << logits[i];
    }
  }
}

TEST(Distribution, TiesGoToTheLowestIds) {
  const std::vector<float> logits = {1, 3, 3, 0, 3, 3};
  EXPECT_EQ(standardise(logits, {0, 0, 1}).argmax(), 1);
  EXPECT_THAT(support(standardise(logits, {1, 2, 1})), testing::ElementsAre(1, 2));
  EXPECT_THAT(support(standardise(logits, {1, 3, 1})), testing::ElementsAre(1, 2, 4));
  EXPECT_THAT(support(standardise(logits, {1, 1, 1})), testing::ElementsAre(1));
  EXPECT_EQ(standardise(logits, {1, 0, 1}).argmax(), 1);
  // With four equal tokens, the prefix that reaches exactly one half has two.
  const std::vector<float> equal(4, 2.0f);
  EXPECT_THAT(support(standardise(equal, {1, 0, .5})), testing::ElementsAre(0, 1));
  EXPECT_THAT(support(standardise(equal, {1, 0, .51})), testing::ElementsAre(0, 1, 2));
  // Ties over many blocks, with the k-th inside them.
  std::vector<float> many(1000, 0.0f);
  many[700] = 1;
  const std::vector<Token> kept = support(standardise(many, {1, 100, 1}));
  ASSERT_EQ(kept.size(), 100u);
  EXPECT_EQ(kept[98], 98);
  EXPECT_EQ(kept[99], 700);
}

TEST(Distribution, TopKAboveTheVocabularyAndTinyTopPKeepWhatTheyMust) {
  const std::vector<float> logits = {0, 2, 1};
  EXPECT_EQ(probabilities(standardise(logits, {1, 99, 1})), probabilities(standardise(logits, {1, 0, 1})));
  EXPECT_EQ(probabilities(standardise(logits, {1, 3, 1})), probabilities(standardise(logits, {1, 0, 1})));
  EXPECT_THAT(support(standardise(logits, {1, 0, 1e-9})), testing::ElementsAre(1));
  EXPECT_THAT(probabilities(standardise(logits, {1, 0, 1e-9})), testing::ElementsAre(0, 1, 0));
  // The token that crosses the bound is included: e^2 / (e^2 + e + 1) = .665.
  EXPECT_THAT(support(standardise(logits, {1, 0, .66})), testing::ElementsAre(1));
  EXPECT_THAT(support(standardise(logits, {1, 0, .67})), testing::ElementsAre(1, 2));
  // top-p counts within the top-k: of {1, 2} token 1 holds .731.
  EXPECT_THAT(support(standardise(logits, {1, 2, .70})), testing::ElementsAre(1));
  EXPECT_THAT(support(standardise(logits, {1, 2, .74})), testing::ElementsAre(1, 2));
}

TEST(Distribution, BannedTokensAndExtremeLogitsAreFine) {
  const Distribution d = standardise({-kInf, 0, -kInf, -1e30f, 3e38f, -3e38f}, {1, 0, 1});
  EXPECT_THAT(probabilities(d), testing::ElementsAre(0, 0, 0, 0, 1, 0));
  EXPECT_THAT(support(standardise({-kInf, 0, 0}, {1, 3, 1})), testing::ElementsAre(1, 2));
  EXPECT_EQ(standardise({-kInf, -5, -4}, {0, 0, 1}).argmax(), 2);
  EXPECT_THAT(support(standardise({1, 1.00001f}, {1e-40, 0, 1})), testing::ElementsAre(1));
}

TEST(Distribution, ReducedVocabularyMapsIds) {
  const std::vector<float> logits = {1, 3, 2};
  const std::vector<Token> ids = {2, 5, 7};
  Distribution d;
  d.assign_logits(logits, {1, 0, 1}, ids, 9);
  const std::vector<double> compact = naive(logits, {1, 0, 1});
  EXPECT_EQ(d.vocab(), 9);
  EXPECT_THAT(support(d), testing::ElementsAre(2, 5, 7));
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(d.prob(ids[i]), compact[i], 1e-6);
  d.assign_logits(logits, {1, 2, 1}, ids, 9);
  EXPECT_THAT(support(d), testing::ElementsAre(5, 7));
  d.assign_logits(logits, {0, 0, 1}, ids, 9);
  EXPECT_TRUE(d.one_hot());
  EXPECT_EQ(d.argmax(), 5);
  EXPECT_THROW(d.assign_logits(logits, {1, 0, 1}, std::vector<Token>{1, 2}, 9), Bug);
  EXPECT_THROW(d.assign_logits(logits, {1, 0, 1}, {}, 9), Bug);
}

TEST(Distribution, BrokenLogitsAreAnErrorThatNamesTheEntry) {
  for (const SamplingParams params : {SamplingParams{0, 0, 1}, {1, 0, 1}, {1, 2, .9}}) {
    for (const std::size_t at : {0u, 7u, 16u, 40u}) {
      for (const float bad : {std::nanf(""), kInf}) {
        std::vector<float> logits(41, 0.5f);
        logits[at] = bad;
        try {
          standardise(logits, params);
          FAIL() << at;
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), testing::HasSubstr("entry " + std::to_string(at) + " of 41"));
        }
      }
    }
    EXPECT_THROW(standardise(std::vector<float>(5, -kInf), params), Error);
  }
}

TEST(Distribution, AssignWeightsKeepsTheLawAndRefusesNonsense) {
  Distribution d;
  d.assign_weights(std::vector<double>{2, 0, 6});
  EXPECT_THAT(probabilities(d), testing::ElementsAre(.25, 0, .75));
  EXPECT_THROW(d.assign_weights(std::vector<double>{0, 0}), Bug);
  EXPECT_THROW(d.assign_weights(std::vector<double>{1, -1}), Bug);
  EXPECT_THROW(d.assign_weights(std::vector<double>{1, NAN}), Bug);
  EXPECT_THROW(d.assign_one_hot(3, 3), Bug);
  d.assign_one_hot(2, 3);
  EXPECT_THAT(probabilities(d), testing::ElementsAre(0, 0, 1));
  EXPECT_TRUE(d.weights().empty());
}

TEST(Distribution, SamplingHasItsLaw) {
  std::mt19937 random(3);
  const Distribution d = standardise(random_logits(30, random, 1), {1, 20, 1});
  for (const bool coupled : {false, true}) {
    const Coins coins(7, 1);
    const int n = 50000;
    std::vector<double> counts(30);
    for (int i = 0; i < n; ++i)
      ++counts[coupled ? d.sample_coupled(coins, i) : d.sample(coins, {i, Purpose::target, 0})];
    double chi2 = 0;
    for (int x = 0; x < 30; ++x) {
      const double expected = n * d.prob(x);
      if (expected > 0) {
        chi2 += std::pow(counts[x] - expected, 2) / expected;
      } else {
        EXPECT_EQ(counts[x], 0);
      }
    }
    const boost::math::chi_squared law(19);
    EXPECT_GT(boost::math::cdf(boost::math::complement(law, chi2)), 1e-3) << "coupled " << coupled;
  }
}

TEST(Distribution, CoupledDrawsOfTargetAndDraftMeetAtTheGoldenRate) {
  Distribution p, q;
  p.assign_weights(std::vector<double>{.55, .25, .15, .05});
  q.assign_weights(std::vector<double>{.4, .35, .05, .2});
  const Coins coins(1, 1);
  const int n = 100000;
  int met = 0;
  for (int i = 0; i < n; ++i) met += p.sample_coupled(coins, i) == q.sample_coupled(coins, i);
  EXPECT_NEAR(met / double(n), .706, 4 * std::sqrt(.706 * .294 / n) + 5e-4);
}

TEST(Distribution, RankEntropyAndDistances) {
  Distribution p, q, hot;
  p.assign_weights(std::vector<double>{.25, .5, .25, 0});
  q.assign_weights(std::vector<double>{.5, .25, 0, .25});
  hot.assign_one_hot(1, 4);
  EXPECT_EQ(p.rank(1), 0);
  EXPECT_EQ(p.rank(0), 1);
  EXPECT_EQ(p.rank(2), 2);
  EXPECT_EQ(p.rank(3), 3);
  EXPECT_EQ(hot.rank(1), 0);
  EXPECT_EQ(hot.rank(0), 1);
  EXPECT_EQ(hot.rank(3), 3);
  std::vector<Token> top;
  p.top(2, top);
  EXPECT_THAT(top, testing::ElementsAre(1, 0));
  p.top(9, top);
  EXPECT_THAT(top, testing::ElementsAre(1, 0, 2));  // no token of mass 0
  hot.top(3, top);
  EXPECT_THAT(top, testing::ElementsAre(1));
  p.top(0, top);
  EXPECT_TRUE(top.empty());
  EXPECT_NEAR(p.entropy(), 1.5 * std::log(2.0), 1e-12);
  EXPECT_EQ(hot.entropy(), 0);
  EXPECT_NEAR(overlap(p, q), .5, 1e-15);
  EXPECT_NEAR(overlap(p, hot), .5, 1e-15);
  EXPECT_NEAR(overlap(hot, q), .25, 1e-15);
  EXPECT_NEAR(agreement(p, q), .25, 1e-15);
  EXPECT_NEAR(agreement(hot, hot), 1, 1e-15);
  EXPECT_NEAR(total_variation(p, q), .5, 1e-15);
  EXPECT_EQ(total_variation(p, p), 0);
  std::mt19937 random(5);
  const Distribution a = standardise(random_logits(777, random), {1, 0, 1}),
                     b = standardise(random_logits(777, random), {1, 0, 1});
  double entropy = 0, min = 0, product = 0;
  for (Token x = 0; x < 777; ++x) {
    entropy -= a.prob(x) * std::log(a.prob(x));
    min += std::min(a.prob(x), b.prob(x));
    product += a.prob(x) * b.prob(x);
    const auto ahead = [&](Token y) { return a.prob(y) > a.prob(x) || (a.prob(y) == a.prob(x) && y < x); };
    int rank = 0;
    for (Token y = 0; y < 777; ++y) rank += ahead(y);
    EXPECT_EQ(a.rank(x), rank);
  }
  EXPECT_NEAR(a.entropy(), entropy, 1e-12);
  EXPECT_NEAR(overlap(a, b), min, 1e-12);
  EXPECT_NEAR(agreement(a, b), product, 1e-12);
  EXPECT_THROW(overlap(a, p), Bug);
}

}  // namespace
}  // namespace speclab::distribution_test
