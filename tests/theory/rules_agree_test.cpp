// Compares the acceptance rules of core/decoding with the closed forms of core/theory.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/decoding/rules/accept.h"
#include "core/theory/verifier_bounds.h"
#include "tests/theory/row_acceptance.h"

namespace speclab::theory::rules_agree_test {
namespace {

struct Pair {
  std::vector<double> p, q;
  Distribution target, draft;
};

Pair random_pair(std::mt19937_64& random) {
  Pair pair;
  for (auto* row : {&pair.p, &pair.q}) {
    row->resize(7);
    for (double& weight : *row) weight = random() % 4 == 0 ? 0 : double(random() % 1000);
    (*row)[random() % 7] += 1;
  }
  pair.target.assign_weights(pair.p);
  pair.draft.assign_weights(pair.q);
  pair.target.probabilities(pair.p);
  pair.draft.probabilities(pair.q);
  return pair;
}

class RulesAgree : public testing::Test {
 protected:
  template <typename Expected>
  void expect(const char* name, const RuleOptions& options, Expected&& closed_form) {
    const AcceptanceRule& rule = find_acceptance_rule(name);
    std::mt19937_64 random(1);
    for (int trial = 0; trial < 300; ++trial) {
      const Pair pair = random_pair(random);
      EXPECT_NEAR(rule.expected({&pair.target, &pair.target}, &pair.draft, -1, options), closed_form(pair),
                  1e-9)
          << name;
    }
  }

  template <typename Law>
  void expect_law(const char* name, const RuleOptions& options, Law&& closed_form) {
    const AcceptanceRule& rule = find_acceptance_rule(name);
    std::mt19937_64 random(2);
    std::vector<double> law;
    for (int trial = 0; trial < 300; ++trial) {
      const Pair pair = random_pair(random);
      rule.output_law({&pair.target, &pair.target}, &pair.draft, -1, options, law);
      const std::vector<double> expected = closed_form(pair);
      for (std::size_t x = 0; x < law.size(); ++x) EXPECT_NEAR(law[x], expected[x], 1e-9) << name;
    }
  }
};

TEST_F(RulesAgree, ExpectedAcceptance) {
  expect("rejection", {}, [](const Pair& pair) { return accept_rejection(pair.p, pair.q); });
  expect("sample_match", {}, [](const Pair& pair) { return accept_sample_match(pair.p, pair.q); });
  expect("coupled", {}, [](const Pair& pair) { return accept_gumbel(pair.p, pair.q); });
  expect("non_iterative", {}, [](const Pair& pair) { return accept_non_iterative(pair.p, pair.q); });
  expect("lenience", {.lenience = 0.4}, [](const Pair& pair) { return accept_lenient(pair.p, pair.q, 0.4); });
  expect("uniform_b", {.b = 0.4}, [](const Pair& pair) { return accept_lenient(pair.p, pair.q, 0.4); });
  expect("distillspec_lin", {.epsilon = 0.6},
         [](const Pair& pair) { return accept_lenient(pair.p, pair.q, 0.6); });
}

// The formula as the paper states it, with a sum over all pairs of tokens.
TEST_F(RulesAgree, SharedNoiseAcceptsByItsFormula) {
  expect("coupled", {}, [](const Pair& pair) { return coupling_acceptance(pair.p, pair.q); });
  Distribution p, q;
  p.assign_weights(std::vector<double>{.55, .25, .15, .05});
  q.assign_weights(std::vector<double>{.4, .35, .05, .2});
  const AcceptanceRule& rule = find_acceptance_rule("coupled");
  EXPECT_NEAR(rule.expected({&p, &p}, &q, -1, {}), .706441, 5e-7);
  // The formula is the probability that draft and target draw the same token with the same noise.
  constexpr int kDraws = 200000;
  const Coins coins(3, 4);
  int equal = 0;
  for (int i = 0; i < kDraws; ++i) equal += p.sample_coupled(coins, i) == q.sample_coupled(coins, i) ? 1 : 0;
  EXPECT_NEAR(equal / double(kDraws), .706441, 4.5 * std::sqrt(.706441 * .293559 / kDraws));
}

// P(the target's token of K streams = the draft's token of stream 0) by the formula of the rule, by a sum of
// integrals over a fine grid, and by counting.
TEST_F(RulesAgree, AListOfStreamsAcceptsByItsFormula) {
  const AcceptanceRule& rule = find_acceptance_rule("coupled");
  const auto by_grid = [](const Pair& pair, int streams) {
    const auto d = [&](double s) {
      double sum = streams - 1;
      for (std::size_t y = 0; y < pair.p.size(); ++y) sum += std::max(pair.p[y], s * pair.q[y]);
      return sum;
    };
    double total = 0;
    for (std::size_t x = 0; x < pair.p.size(); ++x) {
      if (pair.p[x] <= 0 || pair.q[x] <= 0) continue;
      const double s = pair.p[x] / pair.q[x];
      double integral = 0;  // over s / v, v from 0 to 1
      constexpr int kSteps = 20000;
      for (int i = 0; i < kSteps; ++i) {
        const double v = (i + .5) / kSteps, at = d(s / v) * v;
        integral += s / (at * at) / kSteps;
      }
      total += pair.p[x] / d(s) + (streams - 1) * pair.p[x] * pair.q[x] * integral;
    }
    return total;
  };
  std::mt19937_64 random(7);
  for (int streams : {1, 2, 5}) {
    for (int trial = 0; trial < 20; ++trial) {
      const Pair pair = random_pair(random);
      EXPECT_NEAR(
          rule.expected({&pair.target, &pair.target}, &pair.draft, -1, RuleOptions{.streams = streams}),
          by_grid(pair, streams), 2e-6);
    }
  }
  Distribution p, q;
  p.assign_weights(std::vector<double>{.55, .25, .15, .05});
  q.assign_weights(std::vector<double>{.4, .35, .05, .2});
  constexpr int kDraws = 200000, kStreams = 3;
  const Coins coins(3, 4);
  int same = 0, in_list = 0;
  std::vector<int> counts(4);
  for (int i = 0; i < kDraws; ++i) {
    const Token chosen = p.sample_coupled_list(coins, i, kStreams);
    ++counts[static_cast<std::size_t>(chosen)];
    same += q.sample_coupled(coins, i) == chosen ? 1 : 0;
    bool found = false;
    for (int k = 0; k < kStreams; ++k) found = found || q.sample_coupled(coins, i, k) == chosen;
    in_list += found ? 1 : 0;
  }
  const double alpha = rule.expected({&p, &p}, &q, -1, RuleOptions{.streams = kStreams});
  EXPECT_NEAR(same / double(kDraws), alpha, 4.5 * std::sqrt(alpha * (1 - alpha) / kDraws));
  for (Token x = 0; x < 4; ++x) {
    const double wanted = p.prob(x);
    EXPECT_NEAR(counts[static_cast<std::size_t>(x)] / double(kDraws), wanted,
                4.5 * std::sqrt(wanted * (1 - wanted) / kDraws));
  }
  // Three drafts with a stream each: more than one draft with the single stream, less than the optimum
  // .992625 of three independent drafts.
  EXPECT_GT(in_list / double(kDraws), .88);
  EXPECT_LT(in_list / double(kDraws), .992625);
}

TEST_F(RulesAgree, OutputLaws) {
  for (const char* name : {"rejection", "sample_match", "coupled", "non_iterative"}) {
    expect_law(name, {}, [](const Pair& pair) { return pair.p; });
  }
  expect_law("lenience", {.lenience = 0.4},
             [](const Pair& pair) { return law_lenient(pair.p, pair.q, 0.4); });
  expect_law("uniform_b", {.b = 0.4}, [](const Pair& pair) { return law_uniform_b(pair.p, pair.q, 0.4); });
}

}  // namespace
}  // namespace speclab::theory::rules_agree_test
