// Verifiers with errors that real implementations had. The checker that passes our rules must find each of
// them, with the total variation that the theory gives for the golden rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/theory/audit/enumerate.h"
#include "core/theory/audit/toy_step.h"

namespace speclab::enumerate::negative_controls_test {
namespace {

const std::vector<double> kP = {.55, .25, .15, .05};
const std::vector<double> kQ = {.4, .35, .05, .2};

Token draw(const std::vector<double>& weights, const Coins& coins) {
  return static_cast<Token>(coins.categorical(weights, {}));
}

std::vector<double> leftover(std::vector<double> r, const std::vector<double>& q) {
  double sum = 0;
  for (std::size_t x = 0; x < r.size(); ++x) sum += r[x] = std::max(0.0, r[x] - q[x]);
  for (double& w : r) w /= sum;
  return r;
}

std::vector<double> without(std::vector<double> q, Token x) {
  q[x] = 0;
  double sum = 0;
  for (const double w : q) sum += w;
  for (double& w : q) w /= sum;
  return q;
}

/// Verifies given children with given q_j by the real rule.
Token verify(const std::vector<Token>& children, const std::vector<std::vector<double>>& q,
             const Coins& coins) {
  Distribution p;
  p.assign_weights(kP);
  Draft draft;
  draft.reset(0);
  for (std::size_t j = 0; j < children.size(); ++j) {
    int index = -1;
    draft.new_q(&index).assign_weights(q[j]);
    draft.add(children[j], 0, index);
  }
  Acceptance acceptance;
  accept(
      find_acceptance_rule("rejection"), {}, draft, [&](int) { return TargetRow{&p, &p}; }, coins, 0,
      acceptance);
  return acceptance.path.empty() ? acceptance.next : draft.tree.token(acceptance.path[0]);
}

/// The checker: total variation between the law of one emitted token and the golden p.
double distance(const std::function<Token(const Coins&)>& verifier) {
  std::map<Outcome, double> target;
  for (Token x = 0; x < 4; ++x) target[{x}] = kP[x];
  return total_variation(law_of([&](const Coins& coins) { return Outcome{verifier(coins)}; }).mass, target);
}

constexpr double kPass = 1e-7;  // the rows above as floats

TEST(NegativeControls, TheCheckerPassesTheRightVerifier) {
  EXPECT_LT(distance([](const Coins& coins) { return verify({draw(kQ, coins)}, {kQ}, coins); }), kPass);
  EXPECT_LT(distance([](const Coins& coins) {
              const Token a = draw(kQ, coins);
              return verify({a, draw(kQ, coins)}, {kQ, kQ}, coins);
            }),
            kPass);
  EXPECT_LT(distance([](const Coins& coins) {
              const Token a = draw(kQ, coins);
              const Token b = draw(without(kQ, a), coins);
              return verify({a, b}, {kQ, without(kQ, a)}, coins);
            }),
            kPass);
}

TEST(NegativeControls, Nc1ArgmaxDraftWithTheRatioOfASampledOne) {
  EXPECT_NEAR(distance([](const Coins& coins) { return verify({0}, {kQ}, coins); }), .45, 5e-4);
  EXPECT_NEAR(distance([](const Coins& coins) { return verify({1}, {kQ}, coins); }), .464, 5e-4);
}

TEST(NegativeControls, Nc2DiscardsALowConfidenceToken) {
  EXPECT_NEAR(distance([](const Coins& coins) {
                const Token x = draw(kQ, coins);
                return kQ[x] < .3 ? draw(kP, coins) : verify({x}, {kQ}, coins);
              }),
              .11, 5e-4);
}

TEST(NegativeControls, Nc3ThrowsAwayTheSampleThatDidNotMatch) {
  EXPECT_NEAR(distance([](const Coins& coins) {
                const Token drafted = 0;
                return draw(kP, coins) == drafted ? drafted : draw(kP, coins);
              }),
              .2475, 5e-5);
}

TEST(NegativeControls, Nc4SamplesTheTargetAfterARejection) {
  EXPECT_NEAR(distance([](const Coins& coins) {
                const Token x = draw(kQ, coins);
                return coins.bernoulli(kP[x] / kQ[x], {}) ? x : draw(kP, coins);
              }),
              .075, 5e-4);
}

TEST(NegativeControls, Nc5SoftmaxOfTheClampedDifference) {
  EXPECT_NEAR(distance([](const Coins& coins) {
                const Token x = draw(kQ, coins);
                if (coins.bernoulli(kP[x] / kQ[x], {})) return x;
                std::vector<double> weights(4);
                for (Token y = 0; y < 4; ++y) weights[y] = std::exp(std::max(0.0, kP[y] - kQ[y]));
                return draw(weights, coins);
              }),
              .117, 5e-4);
}

TEST(NegativeControls, Nc6DropsADuplicateDraw) {
  EXPECT_NEAR(distance([](const Coins& coins) {
                const Token a = draw(kQ, coins), b = draw(kQ, coins);
                return a == b ? verify({a}, {kQ}, coins) : verify({a, b}, {kQ, kQ}, coins);
              }),
              .0154, 5e-5);
}

TEST(NegativeControls, Nc7VerifiesDrawsWithoutReplacementAsIfWithIt) {
  EXPECT_NEAR(distance([](const Coins& coins) {
                const Token a = draw(kQ, coins);
                return verify({a, draw(without(kQ, a), coins)}, {kQ, kQ}, coins);
              }),
              .0216, 5e-5);
}

TEST(NegativeControls, Nc8VerifiesDrawsWithoutReplacementInIdOrder) {
  EXPECT_NEAR(distance([](const Coins& coins) {
                const Token a = draw(kQ, coins), b = draw(without(kQ, a), coins);
                const Token first = std::min(a, b), second = std::max(a, b);
                return verify({first, second}, {kQ, without(kQ, first)}, coins);
              }),
              .186, 5e-4);
}

TEST(NegativeControls, Nc9LenienceAndUniformB) {
  const World world = golden_world(2);
  const auto one_token = [&](const char* rule, const RuleOptions& options) {
    return distance([&](const Coins& coins) {
      return emit(world, {{1}}, Draws::iid, find_acceptance_rule(rule), options, 1, coins)[0];
    });
  };
  EXPECT_NEAR(one_token("lenience", {.lenience = .5}), .1636, 5e-5);
  EXPECT_NEAR(one_token("uniform_b", {.b = .5}), .1500, 5e-5);
  EXPECT_LT(one_token("lenience", {.lenience = 1}), kPass);
  EXPECT_LT(one_token("uniform_b", {.b = 1}), kPass);
}

TEST(NegativeControls, Nc10DoesNotRemoveARejectedGuess) {
  EXPECT_NEAR(distance([](const Coins& coins) {
                for (const Token guess : {0, 1}) {
                  if (coins.bernoulli(kP[guess], {})) return guess;
                }
                return draw(kP, coins);
              }),
              .1856, 5e-5);
}

// The same for a tree of n-gram guesses, as lookahead decoding verifies them when it samples, over two tokens
// of the text. The wrong walk is the published one (Fu et al. 2024, Algorithm 4 without its renormalisation),
// in which a rejected guess stays in P. The right one is the engine's.
TEST(NegativeControls, Nc10OverATreeOfGuesses) {
  const std::vector<std::vector<Token>> guesses = {{0, 1}, {0, 2}, {1, 0}};
  std::map<Outcome, double> target;
  for (Token x = 0; x < 4; ++x) {
    for (Token y = 0; y < 4; ++y) target[{x, y}] = kP[x] * kP[y];
  }
  const auto distance_of_two = [&](const std::function<Outcome(const Coins&)>& verifier) {
    return total_variation(law_of([&](const Coins& coins) {
                             Outcome out = verifier(coins);
                             while (out.size() < 2) out.push_back(draw(kP, coins));
                             out.resize(2);
                             return out;
                           }).mass,
                           target);
  };
  EXPECT_LT(distance_of_two([&](const Coins& coins) {
              Distribution p;
              p.assign_weights(kP);
              Draft draft;
              draft.reset(0);
              const int a = draft.add(0, 0), b = draft.add(1, 0);
              draft.add(1, a);
              draft.add(2, a);
              draft.add(0, b);
              Acceptance acceptance;
              accept(
                  find_acceptance_rule("rejection"), {}, draft, [&](int) { return TargetRow{&p, &p}; }, coins,
                  0, acceptance);
              Outcome out;
              for (const int node : acceptance.path) out.push_back(draft.tree.token(node));
              out.push_back(acceptance.next);
              return out;
            }),
            kPass);
  EXPECT_GT(distance_of_two([&](const Coins& coins) {
              Outcome out;
              std::vector<std::vector<Token>> left = guesses;
              while (out.size() < 2 && !left.empty()) {
                const std::size_t k = out.size();
                Token taken = -1;
                for (const auto& guess : left) {
                  if (coins.bernoulli(kP[guess[k]], {})) {
                    taken = guess[k];
                    break;
                  }
                }
                if (taken < 0) break;
                out.push_back(taken);
                std::erase_if(left, [&](const auto& guess) { return guess[k] != taken; });
              }
              return out;
            }),
            .15);
}

TEST(NegativeControls, AResidualOfTheOriginalRowInsteadOfTheCurrentOneIsFound) {
  EXPECT_GT(distance([](const Coins& coins) {
              for (int j = 0; j < 2; ++j) {
                const Token x = draw(kQ, coins);
                if (coins.bernoulli(kP[x] / kQ[x], {})) return x;
              }
              return draw(leftover(kP, kQ), coins);
            }),
            .01);
}

}  // namespace
}  // namespace speclab::enumerate::negative_controls_test
