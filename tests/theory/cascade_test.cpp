#include "core/theory/cascade.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "core/theory/chain.h"
#include "tests/base/error_text.h"

namespace speclab::theory {
namespace {

/// P(a round adds i tokens) for i = 0 .. k + 1, from the definition: tokens of draft 2 pass one after the
/// other, and draft 1 adds one token.
std::vector<double> round_law(double alpha2, int k) {
  std::vector<double> law(static_cast<std::size_t>(k) + 2);
  double passed = 1;
  for (int i = 0; i < k; ++i, passed *= alpha2) law[static_cast<std::size_t>(i) + 1] = passed * (1 - alpha2);
  law[static_cast<std::size_t>(k) + 1] = passed;
  return law;
}

double powers_up_to(double alpha, int gamma) {
  double sum = 0;
  for (int i = 0; i <= gamma; ++i) sum += std::pow(alpha, i);
  return sum;
}

TEST(CascadeFormulas, GeneratingFunctionIsThatOfARound) {
  for (const double alpha2 : {0.0, .3, .8, 1.0}) {
    for (const int k : {0, 1, 4}) {
      for (const double x : {0.0, .25, .9, 1.0}) {
        double expected = 0;
        const std::vector<double> law = round_law(alpha2, k);
        for (std::size_t i = 0; i < law.size(); ++i) expected += law[i] * std::pow(x, i);
        EXPECT_NEAR(round_generating_function(alpha2, k, x), expected, 1e-14)
            << alpha2 << " " << k << " " << x;
      }
    }
  }
}

// Enumerates the lengths of all rounds.
TEST(CascadeFormulas, VerticalTokensEqualTheEnumeration) {
  for (const double alpha1 : {0.0, .4, .9, 1 - 1e-12, 1.0}) {
    for (const double alpha2 : {.0, .6, 1.0}) {
      for (const int rounds : {0, 1, 3}) {
        const int k = 3;
        const std::vector<double> law = round_law(alpha2, k);
        const std::function<double(int, int)> expected = [&](int left, int length) -> double {
          if (left == 0) return powers_up_to(alpha1, length);
          double sum = 0;
          for (int i = 1; i <= k + 1; ++i)
            if (law[static_cast<std::size_t>(i)] > 0)
              sum += law[static_cast<std::size_t>(i)] * expected(left - 1, length + i);
          return sum;
        };
        EXPECT_NEAR(vertical_tokens({alpha1, alpha2, rounds, k, 0, 0}), expected(rounds, 0), 1e-10)
            << alpha1 << " " << alpha2 << " " << rounds;
      }
    }
  }
}

TEST(CascadeFormulas, VerticalMonteCarlo) {
  std::mt19937_64 random(11);
  const auto coin = [&](double p) { return static_cast<double>(random() >> 11) * 0x1p-53 < p; };
  const VerticalCascade cascade{.7, .85, 2, 4, .2, .01};
  const int runs = 200'000;
  double sum = 0;
  for (int run = 0; run < runs; ++run) {
    int length = 0;
    for (int round = 0; round < cascade.rounds; ++round) {
      int passed = 0;
      while (passed < cascade.k && coin(cascade.alpha2)) ++passed;
      length += passed + 1;
    }
    int accepted = 0;
    while (accepted < length && coin(cascade.alpha1)) ++accepted;
    sum += accepted + 1;
  }
  EXPECT_NEAR(vertical_tokens(cascade), sum / runs, .02);  // 4 standard errors
  EXPECT_DOUBLE_EQ(vertical_improvement(cascade), vertical_tokens(cascade) / (1 + 2 * .2 + 2 * 4 * .01));
}

TEST(CascadeFormulas, HorizontalTokensEqualTheProductsOfAcceptances) {
  for (const double alpha1 : {0.0, .5, 1.0}) {
    for (const double alpha2 : {0.0, .3, 1.0}) {
      const int k1 = 2, k2 = 3;
      double sum = 1, reached = 1;
      for (int i = 0; i < k1 + k2; ++i) sum += reached *= i < k1 ? alpha1 : alpha2;
      const HorizontalCascade cascade{alpha1, alpha2, k1, k2, .1, .02};
      EXPECT_NEAR(horizontal_tokens(cascade), sum, 1e-14);
      EXPECT_NEAR(horizontal_improvement(cascade), sum / (1 + .2 + .06), 1e-14);
    }
  }
}

// With a draft 2 that proposes nothing, both cascades are the plain chain of draft 1.
TEST(CascadeFormulas, WithoutDraft2IsAChain) {
  EXPECT_NEAR(vertical_improvement({.8, .5, 5, 0, .1, 0}), walltime_improvement(.8, 5, .1), 1e-14);
  EXPECT_NEAR(horizontal_improvement({.8, .5, 5, 0, .1, 0}), walltime_improvement(.8, 5, .1), 1e-14);
  // Equal drafts in a row are a longer chain.
  EXPECT_NEAR(horizontal_improvement({.8, .8, 2, 3, .1, .1}), walltime_improvement(.8, 5, .1), 1e-14);
}

TEST(CascadeFormulas, PredictionsNeedTheirInputs) {
  CascadeInputs inputs{.alpha = .7, .alpha2 = .8, .c = {}, .c2 = {}, .gamma = 3, .gamma2 = 4, .rounds = {}};
  const auto names = [&] {
    std::vector<std::string> out;
    for (const Prediction& one : cascade_predictions(inputs)) out.push_back(one.name);
    return out;
  };
  EXPECT_THAT(names(), ::testing::ElementsAre("cascade_horizontal"));
  inputs.c = .2, inputs.c2 = 0;
  EXPECT_THAT(names(), ::testing::ElementsAre("cascade_horizontal", "cascade_horizontal_ewif"));
  inputs.rounds = 2;
  EXPECT_THAT(names(), ::testing::ElementsAre("cascade_vertical", "cascade_vertical_ewif"));
  inputs.alpha2.reset();
  EXPECT_THAT(names(), ::testing::IsEmpty());
}

TEST(CascadeFormulas, RefusesInputsOutsideTheirDomain) {
  EXPECT_THROW(vertical_tokens({1.1, .5, 1, 1, 0, 0}), Error);
  EXPECT_THROW(vertical_tokens({.5, -.1, 1, 1, 0, 0}), Error);
  EXPECT_THROW(vertical_tokens({.5, .5, -1, 1, 0, 0}), Error);
  EXPECT_THROW(vertical_improvement({.5, .5, 1, 1, -1, 0}), Error);
  EXPECT_THROW(horizontal_tokens({.5, 2, 1, 1, 0, 0}), Error);
}

}  // namespace
}  // namespace speclab::theory
