#include "tests/theory/row_acceptance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/base/error.h"

namespace speclab::theory::row_acceptance_test {
namespace {

// A pair of rows with known acceptance under every verifier.
const std::vector<double> kP = {.55, .25, .15, .05}, kQ = {.4, .35, .05, .2};

std::vector<double> random_row(std::mt19937_64& random, int vocab) {
  std::vector<double> row(vocab);
  double sum = 0;
  for (double& value : row) {
    value = random() % 4 == 0 ? 0 : -std::log1p(-((random() >> 11) * 0x1p-53));
    sum += value;
  }
  if (sum == 0) row[0] = sum = 1;
  for (double& value : row) value /= sum;
  return row;
}

TEST(RowAcceptance, GoldenPair) {
  EXPECT_NEAR(accept_rejection(kP, kQ), .75, 1e-15);
  EXPECT_NEAR(total_variation(kP, kQ), .25, 1e-15);
  EXPECT_NEAR(accept_sample_match(kP, kQ), .325, 1e-15);
  EXPECT_NEAR(accept_gumbel(kP, kQ), .706, 5e-4);
  EXPECT_NEAR(accept_non_iterative(kP, kQ), 1 / 3., 1e-15);
  EXPECT_EQ(accept_one_hot(kP, 1), .25);
  EXPECT_EQ(accept_greedy(kP, kQ), 1);
  EXPECT_NEAR(accept_lenient(kP, kQ, .5), .90, 1e-15);
}

TEST(RowAcceptance, GoldenLossyLaws) {
  EXPECT_NEAR(total_variation(kP, law_lenient(kP, kQ, .5)), .1636, 5e-5);
  EXPECT_NEAR(total_variation(kP, law_uniform_b(kP, kQ, .5)), .1500, 5e-5);
}

TEST(RowAcceptance, LenienceOneIsExact) {
  const auto lenient = law_lenient(kP, kQ, 1), uniform = law_uniform_b(kP, kQ, 1);
  for (int x = 0; x < 4; ++x) {
    EXPECT_NEAR(lenient[x], kP[x], 1e-15);
    EXPECT_NEAR(uniform[x], kP[x], 1e-15);
  }
}

TEST(RowAcceptance, GumbelByTheDefinitionAndByMonteCarlo) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const int vocab = 2 + trial % 7;
    const auto p = random_row(random, vocab), q = random_row(random, vocab);
    double direct = 0;
    for (int x = 0; x < vocab; ++x) {
      if (p[x] == 0 || q[x] == 0) continue;
      double sum = 0;
      for (int y = 0; y < vocab; ++y) sum += std::max(p[y] / p[x], q[y] / q[x]);
      direct += 1 / sum;
    }
    EXPECT_NEAR(accept_gumbel(p, q), direct, 1e-13);
  }
  int equal = 0;
  const int draws = 200'000;
  for (int i = 0; i < draws; ++i) {
    int best_p = 0, best_q = 0;
    double least_p = 1e300, least_q = 1e300;
    for (int x = 0; x < 4; ++x) {  // argmax(log p + G) = argmin(E / p) for exponential E
      const double e = -std::log1p(-((random() >> 11) * 0x1p-53));
      if (e / kP[x] < least_p) least_p = e / kP[x], best_p = x;
      if (e / kQ[x] < least_q) least_q = e / kQ[x], best_q = x;
    }
    equal += best_p == best_q;
  }
  const double alpha = accept_gumbel(kP, kQ);
  EXPECT_NEAR(equal / double(draws), alpha, 4 * std::sqrt(alpha * (1 - alpha) / draws));
}

TEST(RowAcceptance, OrderOfTheVerifiers) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 500; ++trial) {
    const auto p = random_row(random, 6), q = random_row(random, 6);
    const double best = accept_rejection(p, q);
    EXPECT_NEAR(best, 1 - total_variation(p, q), 1e-14);
    EXPECT_LE(accept_sample_match(p, q), best + 1e-14);
    EXPECT_LE(accept_non_iterative(p, q), best + 1e-14);
    EXPECT_LE(accept_gumbel(p, q), best + 1e-14);
    EXPECT_GE(accept_gumbel(p, q), best / (2 - best) - 1e-14);
    EXPECT_GE(accept_lenient(p, q, 0.3), best - 1e-14);
    const auto lenient = law_lenient(p, q, 0.3);
    double sum = 0;
    for (int x = 0; x < 6; ++x) {
      sum += lenient[x];
      EXPECT_LE(lenient[x], p[x] / 0.3 + 1e-12);  // no token is emitted more often than p / l
    }
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

TEST(RowAcceptance, EqualDisjointAndOneHotRows) {
  const std::vector<double> a = {1, 0, 0}, b = {0, 0.5, 0.5};
  EXPECT_NEAR(accept_rejection(kP, kP), 1, 1e-15);
  EXPECT_NEAR(accept_gumbel(kP, kP), 1, 1e-15);
  EXPECT_NEAR(accept_non_iterative(kP, kP), 1, 1e-15);
  for (auto accept :
       {accept_rejection, accept_sample_match, accept_non_iterative, accept_gumbel, accept_greedy}) {
    EXPECT_EQ(accept(a, b), 0);
    EXPECT_EQ(accept(a, a), 1);
  }
  EXPECT_EQ(law_lenient(kP, kP, 1), kP);
}

TEST(RowAcceptance, BadRowsThrow) {
  const std::vector<double> three = {.5, .25, .25}, half = {.25, .25, 0, 0}, negative = {1.5, -.5, 0, 0},
                            empty;
  const std::vector<double> nan = {1, std::numeric_limits<double>::quiet_NaN(), 0, 0};
  for (const auto& bad : {three, half, negative, empty, nan}) {
    EXPECT_THROW(accept_rejection(kP, bad), Error);
    EXPECT_THROW(accept_gumbel(bad, kP), Error);
  }
  EXPECT_THROW(accept_lenient(kP, kQ, 0), Error);
  EXPECT_THROW(accept_lenient(kP, kQ, 1.5), Error);
  EXPECT_THROW(accept_one_hot(kP, 4), Error);
}

}  // namespace
}  // namespace speclab::theory::row_acceptance_test
