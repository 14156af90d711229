// Block verification with errors that are easy to make. Some of them leave the law of the first token right,
// so only the joint law of all tokens of a step shows them. The checks that pass the rule "block" must find
// each of them, with the errors that exact enumeration gives for the golden rows.
//
// The error of coins that are addressed by absolute position (NC14) needs several steps and real coins: see
// shared_coins() in markov_generations.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/theory/audit/toy_step.h"
#include "core/theory/audit/enumerate.h"

namespace speclab::enumerate::block_controls_test {
namespace {

const std::vector<double> kTarget = {.55, .25, .15, .05};
const std::vector<double> kDraft = {.4, .35, .05, .2};

/// Which part of block verification is wrong.
struct BlockErrors {
  bool token_residual = false;   ///< draws the correction from norm((p - q)+), without rho
  bool first_rejection = false;  ///< tests length i with rho_i, from the root, and stops at the first failure
  bool uncapped_last =
      false;  ///< tests the last length with the product of all ratios, not capped on the way
};

Token sample(const std::vector<double>& weights, const Coins& coins) {
  return static_cast<Token>(coins.categorical(weights, {}));
}

/// norm((rho p - q)+), or p if nothing is left; `*mass` is the sum before it is normalised.
std::vector<double> block_residual(double rho, double* mass) {
  std::vector<double> left(kTarget.size());
  *mass = 0;
  for (std::size_t x = 0; x < left.size(); ++x)
    *mass += left[x] = std::max(0.0, rho * kTarget[x] - kDraft[x]);
  return *mass > 0 ? left : kTarget;
}

/// The tokens of one step: the accepted ones and one more.
Outcome wrong_block(int gamma, const BlockErrors& errors, const Coins& coins) {
  Outcome drafted;
  std::vector<double> rho = {1}, product = {1};
  for (int i = 0; i < gamma; ++i) {
    const auto x = static_cast<std::size_t>(drafted.emplace_back(sample(kDraft, coins)));
    rho.push_back(std::min(1.0, rho.back() * kTarget[x] / kDraft[x]));
    product.push_back(product.back() * kTarget[x] / kDraft[x]);
  }
  const auto passes = [&](int length) {
    const auto at = static_cast<std::size_t>(length);
    if (errors.first_rejection) return coins.bernoulli(rho[at], {});
    if (length == gamma)
      return coins.bernoulli(std::min(1.0, errors.uncapped_last ? product[at] : rho[at]), {});
    double mass = 0;
    block_residual(rho[at], &mass);
    return coins.bernoulli(mass > 0 ? mass / (mass + 1 - rho[at]) : rho[at] < 1 ? 0 : 1, {});
  };
  int length = 0;
  if (errors.first_rejection) {
    while (length < gamma && passes(length + 1)) ++length;
  } else {
    length = gamma;
    while (length > 0 && !passes(length)) --length;
  }
  double mass = 0;
  const double at_length = errors.token_residual ? 1 : rho[static_cast<std::size_t>(length)];
  drafted.resize(static_cast<std::size_t>(length));
  drafted.push_back(sample(length == gamma ? kTarget : block_residual(at_length, &mass), coins));
  return drafted;
}

/// The largest error of the law of the first `count` tokens.
double law_error(int gamma, int count, const BlockErrors& errors) {
  const Law law = law_of([&](const Coins& coins) {
    Outcome tokens = wrong_block(gamma, errors, coins);
    while (static_cast<int>(tokens.size()) < count) tokens.push_back(sample(kTarget, coins));
    tokens.resize(static_cast<std::size_t>(count));
    return tokens;
  });
  double worst = 0;
  std::vector<Outcome> texts = {{}};
  for (int i = 0; i < count; ++i) {
    std::vector<Outcome> longer;
    for (const Outcome& text : texts) {
      for (Token x = 0; x < 4; ++x) {
        longer.push_back(text);
        longer.back().push_back(x);
      }
    }
    texts = std::move(longer);
  }
  for (const Outcome& text : texts) {
    double mass = 1;
    for (const Token x : text) mass *= kTarget[static_cast<std::size_t>(x)];
    const auto it = law.mass.find(text);
    worst = std::max(worst, std::abs(mass - (it == law.mass.end() ? 0 : it->second)));
  }
  return worst;
}

double mean_tokens(int gamma, const BlockErrors& errors) {
  double tokens = 0;
  std::size_t emitted = 0;
  walk([&](const Coins& coins) { emitted = wrong_block(gamma, errors, coins).size(); },
       [&](double probability) { tokens += probability * static_cast<double>(emitted); });
  return tokens;
}

TEST(BlockControls, TheRightRulePasses) {
  EXPECT_LT(law_error(2, 3, {}), 1e-12);
  EXPECT_LT(law_error(3, 4, {}), 1e-12);
  EXPECT_NEAR(mean_tokens(3, {}), 2.883625, 1e-12);
}

TEST(BlockControls, Nc11DrawsTheCorrectionFromTheTokenResidual) {
  EXPECT_NEAR(law_error(2, 3, {.token_residual = true}), .0066, 5e-5);
}

TEST(BlockControls, Nc12StopsAtTheFirstRejection) {
  EXPECT_NEAR(law_error(2, 3, {.token_residual = true, .first_rejection = true}), .0098, 5e-5);
  EXPECT_NEAR(law_error(2, 3, {.first_rejection = true}), .0334, 5e-5);
}

// A check of the first token alone misses this error, and so does a look at the mean: it is larger than the
// largest one that is possible.
TEST(BlockControls, Nc13TestsTheWholeDraftWithTheUncappedProduct) {
  EXPECT_LT(law_error(2, 1, {.uncapped_last = true}), 1e-12) << "the first token has the target's law";
  EXPECT_NEAR(law_error(2, 3, {.uncapped_last = true}), .0206, 5e-5);
  EXPECT_NEAR(mean_tokens(3, {.uncapped_last = true}), 2.974, 5e-4);
  EXPECT_GT(mean_tokens(3, {.uncapped_last = true}), 2.883625 + .05);
}

}  // namespace
}  // namespace speclab::enumerate::block_controls_test
