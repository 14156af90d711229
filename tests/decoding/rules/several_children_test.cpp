// Rules for several children of a node: their golden acceptance, the two properties that draws without
// replacement give (Chen et al. 2024, Sequoia), children that are not draws, and what a rule refuses.
// enumeration_test.cpp proves that the rules are lossless.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/base/error.h"
#include "core/theory/verifier_bounds.h"
#include "core/theory/audit/toy_step.h"
#include "core/theory/audit/enumerate.h"

namespace speclab::enumerate::several_children_test {
namespace {

/// P(a child is accepted) at the pending token.
double accepted(const World& world, const char* rule, const Shape& shape, Draws draws) {
  Step step;
  double mass = 0;
  walk(
      [&](const Coins& coins) { run_step(world, shape, draws, find_acceptance_rule(rule), {}, coins, step); },
      [&](double probability) { mass += step.acceptance.path.empty() ? 0 : probability; });
  return mass;
}

World world_of(const std::vector<double>& p, const std::vector<double>& q) {
  World world;
  world.vocab = static_cast<int>(p.size());
  for (Token x = -1; x < world.vocab; ++x) {
    World::Row& row = world.rows[x < 0 ? Outcome{} : Outcome{x}];
    row.p.assign_weights(p);
    row.raw = row.p;
    for (Distribution& law : row.q) law.assign_weights(q);
  }
  return world;
}

TEST(SeveralChildren, AcceptTheirGoldenShare) {
  const World golden = golden_world(2);
  EXPECT_NEAR(accepted(golden, "k_seq", {{1}}, Draws::iid), .75, 1e-7);
  EXPECT_NEAR(accepted(golden, "k_seq", {{2}}, Draws::iid), .8955, 5e-5);
  EXPECT_NEAR(accepted(golden, "k_seq", {{3}}, Draws::iid), .9292, 5e-5);
  EXPECT_NEAR(accepted(golden, "rejection_any_order", {{2}}, Draws::iid), .8625, 1e-7);
  EXPECT_NEAR(accepted(golden, "rejection_any_order", {{3}}, Draws::iid), .9194, 5e-5);
}

// With one draft model the order of independent draws changes nothing. With two it is the mean of both
// orders.
TEST(AnyOrder, IsTheMeanOverTheOrdersOfTwoModels) {
  World world = golden_world(2), swapped = golden_world(2);
  world.rows[{}].q[1].assign_weights(std::vector<double>{.1, .1, .2, .6});
  swapped.rows[{}].q[0] = world.rows[{}].q[1];
  swapped.rows[{}].q[1] = world.rows[{}].q[0];
  const double first = accepted(world, "rejection", {{2}}, Draws::two_models);
  const double second = accepted(swapped, "rejection", {{2}}, Draws::two_models);
  EXPECT_GT(std::abs(first - second), 1e-3) << "the order matters";
  EXPECT_NEAR(accepted(world, "rejection_any_order", {{2}}, Draws::two_models), (first + second) / 2, 1e-12);
}

TEST(AnyOrder, RefusesChildrenThatDependOnEachOther) {
  const World world = golden_world(3);
  const auto refused = [&](Draws draws, const char* text) {
    Step step;
    try {
      run_step(world, {{2}}, draws, find_acceptance_rule("rejection_any_order"), {}, Coins(1, 1), step);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr(text), testing::HasSubstr("rule rejection,")));
    }
  };
  refused(Draws::swor, "drawn without replacement");
  refused(Draws::mixed, "drawn and copied children");
}

// Every lossless rule for trees stays below the optimum, and "rejection" beats K-SEQ nowhere by the whole
// gap.
TEST(SeveralChildren, NeverExceedTheOptimum) {
  std::mt19937 random(61);
  int better = 0;
  for (int i = 0; i < 30; ++i) {
    const World world = random_world(4, 2, i % 2 == 0 ? Rows::generic : Rows::zeros, false, random);
    std::vector<double> p, q;
    world.at({}).p.probabilities(p);
    world.at({}).q[0].probabilities(q);
    for (const int k : {2, 3}) {
      const double iid = theory::best_acceptance(p, q, k, theory::DraftedSet::iid);
      const double without = theory::best_acceptance(p, q, k, theory::DraftedSet::without_replacement);
      const double by_k_seq = accepted(world, "k_seq", {{k}}, Draws::iid);
      const double by_rejection = accepted(world, "rejection", {{k}}, Draws::iid);
      EXPECT_LE(by_k_seq, iid + 1e-9);
      EXPECT_LE(by_rejection, iid + 1e-9);
      EXPECT_LE(accepted(world, "multi_path_block", {{k}}, Draws::iid), iid + 1e-9);
      EXPECT_GE(accepted(world, "multi_path_block", {{k}}, Draws::iid),
                overlap(world.at({}).p, world.at({}).q[0]) - 1e-9)
          << "never below one path";
      EXPECT_LE(accepted(world, "rejection", {{k}}, Draws::swor), without + 1e-7);
      EXPECT_GE(by_k_seq, (1 - std::pow(1 - 1.0 / k, k)) * iid - 1e-9) << "the guarantee of SpecTr";
      better += by_k_seq > by_rejection + 1e-9 ? 1 : 0;
    }
  }
  EXPECT_GT(better, 20);
}

// Sequoia's two properties. Optimal transport: one child is accepted with sum min(p, q). Cover: when q has
// mass on all tokens of p and each of them is drawn, one is accepted for sure.
TEST(WithoutReplacement, IsOptimalForOneChildAndCovers) {
  const World half = world_of({1, 0}, {.5, .5});
  EXPECT_NEAR(accepted(half, "rejection", {{1}}, Draws::swor), .5, 1e-12);
  EXPECT_NEAR(accepted(half, "rejection", {{2}}, Draws::swor), 1, 1e-12);
  EXPECT_NEAR(accepted(half, "rejection", {{2}}, Draws::iid), .75, 1e-12) << "independent draws do not cover";
  EXPECT_NEAR(accepted(half, "k_seq", {{2}}, Draws::iid), .75, 1e-12);
  EXPECT_NEAR(accepted(world_of({.6, .4}, {.6, .4}), "rejection", {{1}}, Draws::swor), 1, 1e-12);
  EXPECT_NEAR(accepted(world_of({.6, .4}, {.6, .4}), "rejection", {{1}}, Draws::one_hot), .6, 1e-7)
      << "the best token as a copy is not optimal";
  std::mt19937 random(67);
  for (int i = 0; i < 20; ++i) {
    const World world = random_world(3, 2, Rows::generic, false, random);
    const World::Row& row = world.at({});
    EXPECT_NEAR(accepted(world, "rejection", {{1}}, Draws::swor), overlap(row.p, row.q[0]), 1e-7);
    for (const char* rule : {"rejection", "traversal", "k_seq", "one_hot_rejection", "sample_match"})
      EXPECT_NEAR(accepted(world, rule, {{3}}, Draws::swor), 1, 1e-9) << rule << " over the whole support";
  }
}

// When q has no mass left, the further children are tokens that were not drawn. They are tested as copies
// with what is left of p, and the law stays the target's.
TEST(WithoutReplacement, GoesOnWithCopiesWhenNoMassIsLeft) {
  const std::vector<double> p = {.5, .2, .3};
  Distribution target, q;
  target.assign_weights(p);
  q.assign_weights(std::vector<double>{0, 1, 0});
  for (const char* rule : {"rejection", "traversal", "k_seq"}) {
    double covered = 0;
    Acceptance acceptance;
    std::vector<double> law(3);
    Draft draft;
    walk(
        [&](const Coins& coins) {
          draft.reset(0);
          int index = -1;
          draft.new_q(&index) = q;
          draft.add(1, 0, index);
          draft.add(0, 0);
          draft.add(2, 0);
          accept(
              find_acceptance_rule(rule), {}, draft, [&](int) { return TargetRow{&target, &target}; }, coins,
              0, acceptance);
        },
        [&](double probability) {
          const bool in = !acceptance.path.empty();
          covered += in ? probability : 0;
          law[static_cast<std::size_t>(in ? draft.tree.token(acceptance.path[0]) : acceptance.next)] +=
              probability;
        });
    EXPECT_NEAR(covered, 1, 1e-12) << rule;
    for (std::size_t x = 0; x < 3; ++x) EXPECT_NEAR(law[x], p[x], 1e-7) << rule;
  }
}

// Children that are the k best tokens of q and not draws from it. Every lossless rule accepts them with the
// mass that p has on them: each of them in turn is the target's token or it is not.
TEST(CopiedChildren, AreAcceptedWithTheTargetsMassOnThem) {
  const World world = golden_world(2);
  const World::Row& row = world.at({});
  int rules = 0;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.loss({.epsilon = 1}, {.temperature = 1}) != LossClass::l1 || rule.chains_only ||
        rule.independent_paths_only || rule.name == "coupled" || rule.name.ends_with("iterative"))
      continue;  // the noise cannot be enumerated; the two iterative rules need q = p to accept a copy
    ++rules;
    for (const auto& [k, mass] : {std::pair{1, .55}, std::pair{2, .8}, std::pair{3, .85}}) {
      std::vector<Token> best;
      row.q[0].top(k, best);
      double share = 0;
      Acceptance acceptance;
      walk(
          [&](const Coins& coins) {
            Draft draft;
            draft.reset(0);
            for (const Token token : best) draft.add(token, 0);
            accept(
                rule, {.epsilon = 1}, draft, [&](int) { return TargetRow{&row.p, &row.raw}; }, coins, 0,
                acceptance);
          },
          [&](double probability) { share += acceptance.path.empty() ? 0 : probability; });
      EXPECT_NEAR(share, mass, 1e-7) << rule.name << ", the best " << k;
    }
  }
  EXPECT_GE(rules, 9);
}

// Children that are draws but are handed over as copies still give the target's law: a copy is judged by p
// alone. The other way round is the negative control NC1.
TEST(CopiedChildren, MayBeDraws) {
  const World world = golden_world(2);
  const World::Row& row = world.at({});
  for (const char* rule : {"rejection", "traversal", "k_seq"}) {
    std::vector<double> law(4);
    Draft draft;
    Acceptance acceptance;
    walk(
        [&](const Coins& coins) {
          draft.reset(0);
          for (std::uint32_t i = 0; i < 2; ++i) draft.add(row.q[0].sample(coins, {1, Purpose::draft, i}), 0);
          accept(
              find_acceptance_rule(rule), {}, draft, [&](int) { return TargetRow{&row.p, &row.raw}; }, coins,
              0, acceptance);
        },
        [&](double probability) {
          law[static_cast<std::size_t>(acceptance.path.empty() ? acceptance.next
                                                               : draft.tree.token(acceptance.path[0]))] +=
              probability;
        });
    for (Token x = 0; x < 4; ++x) EXPECT_NEAR(law[static_cast<std::size_t>(x)], row.p.prob(x), 1e-12) << rule;
  }
}

}  // namespace
}  // namespace speclab::enumerate::several_children_test
