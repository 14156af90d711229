#include "core/theory/cascade.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "core/theory/chain.h"
#include "tests/base/error_text.h"

namespace speclab::theory::cascade_test {
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

/// A cascade of two drafts with k1 tokens of draft 1 and k2 of draft 2 for the target, and k for the reviews.
MatrixCascade two_drafts(int k1, int k2, int k, double alpha1, double alpha2, double kept, double c1 = 0,
                         double c2 = 0) {
  return {.drafts = 2, .k = {k1, k2, 0, k}, .kept = {alpha1, alpha2, 0, kept}, .c = {c1, c2}};
}

TEST(MatrixCascades, AHorizontalCascadeHasThePapersFormula) {
  for (const double alpha1 : {0.0, .6, 1.0}) {
    const HorizontalCascade paper{alpha1, .4, 3, 2, .2, .05};
    const MatrixCascade cascade = two_drafts(3, 2, 0, alpha1, .4, 0, .2, .05);
    EXPECT_NEAR(matrix_tokens(cascade, full_chain(cascade)), horizontal_tokens(paper), 1e-14);
    EXPECT_NEAR(matrix_improvement(cascade), horizontal_improvement(paper), 1e-14);
  }
}

// If draft 1 keeps all or nothing, the length of a chain follows from the number of rounds.
TEST(MatrixCascades, AVerticalCascadeOfCertainRoundsHasThePapersFormula) {
  EXPECT_NEAR(matrix_improvement(two_drafts(8, 0, 3, .7, 0, 1, .2, .05)),
              vertical_improvement({.7, 1, 2, 3, .2, .05}), 1e-14);
  // A round that keeps nothing adds one token. Rounds near the end of the chain ask for fewer tokens.
  const MatrixCascade nothing = two_drafts(4, 0, 2, .7, 0, 0, .2, .05);
  EXPECT_NEAR(matrix_tokens(nothing, full_chain(nothing)), vertical_tokens({.7, 0, 4, 2, .2, .05}), 1e-14);
  EXPECT_THAT(matrix_forwards(nothing, full_chain(nothing)), ::testing::ElementsAre(4, 2 + 2 + 1 + 0));
}

TEST(MatrixCascades, WithoutReviewsEveryTokenIsAForward) {
  const MatrixCascade cascade = two_drafts(3, 2, 0, .5, .5, 0);
  EXPECT_THAT(matrix_forwards(cascade, std::vector{3, 2}), ::testing::ElementsAre(3, 2));
  EXPECT_THAT(matrix_forwards(cascade, std::vector{1, 0}), ::testing::ElementsAre(1, 0));
}

/// Plays a chain of row `row` of K with real coins and counts the forwards of each draft.
struct PlayedCascade {
  const MatrixCascade& cascade;
  std::mt19937_64 random{5};
  std::vector<double> forwards{};
  std::size_t at(int row, int draft) const { return static_cast<std::size_t>(row * cascade.drafts + draft); }
  std::vector<int> chain(int row, int limit) {  // the draft of each token
    std::vector<int> out;
    for (int draft = row; draft < cascade.drafts; ++draft) {
      const int until = std::min(limit, static_cast<int>(out.size()) + cascade.k[at(row, draft)]);
      while (static_cast<int>(out.size()) < until) {
        const std::vector<int> proposed = chain(draft + 1, until - static_cast<int>(out.size()) - 1);
        ++forwards[static_cast<std::size_t>(draft)];
        std::size_t kept = 0;
        while (kept < proposed.size() &&
               static_cast<double>(random() >> 11) * 0x1p-53 < cascade.kept[at(draft + 1, proposed[kept])])
          ++kept;
        out.insert(out.end(), kept + 1, draft);
      }
    }
    return out;
  }
};

TEST(MatrixCascades, ThreeDraftsMonteCarlo) {
  const MatrixCascade cascade{.drafts = 3,
                              .k = {5, 2, 1, 0, 2, 1, 0, 0, 2},
                              .kept = {.8, .5, .3, 0, .7, .4, 0, 0, .6},
                              .c = {.3, .1, 0}};
  PlayedCascade played{cascade};
  played.forwards.assign(3, 0);
  const int runs = 200'000;
  for (int run = 0; run < runs; ++run) ASSERT_EQ(played.chain(0, 8).size(), 8u);
  const std::vector<int> chain = full_chain(cascade);
  EXPECT_THAT(chain, ::testing::ElementsAre(5, 2, 1));
  const std::vector<double> expected = matrix_forwards(cascade, chain);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(played.forwards[i] / runs, expected[i], .02) << i;
  EXPECT_NEAR(matrix_draft_time(cascade, chain), .3 * expected[0] + .1 * expected[1], 1e-12);
  EXPECT_NEAR(matrix_improvement(cascade),
              matrix_tokens(cascade, chain) / (1 + .3 * expected[0] + .1 * expected[1]), 1e-12);
}

TEST(MatrixCascades, RefuseListsOfTheWrongSize) {
  MatrixCascade cascade = two_drafts(3, 2, 1, .5, .5, .5);
  EXPECT_THROW(matrix_tokens(cascade, std::vector{3}), Error);
  EXPECT_THROW(matrix_tokens(cascade, std::vector{3, -1}), Error);
  cascade.kept[3] = 1.5;
  EXPECT_THROW(matrix_improvement(cascade), Error);
  cascade.kept.pop_back();
  EXPECT_THROW(matrix_improvement(cascade), Error);
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
}  // namespace speclab::theory::cascade_test
