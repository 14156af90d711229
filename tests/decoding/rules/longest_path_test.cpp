// Criterion rules that accept the longest path of a tree.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/theory/audit/toy_step.h"
#include "core/theory/audit/enumerate.h"

namespace speclab::enumerate::longest_path_test {
namespace {

const RuleOptions kLoose = {.beta = 2, .gap = .9, .epsilon = .25, .delta = .9, .theta = .2, .distance = 1};
const char* const kCriteria[] = {"top_beta", "gap", "typical", "threshold", "specdec", "distance"};

AcceptanceRule rule_of(const std::string& criterion) { return find_acceptance_rule(criterion + "_longest"); }

TargetRow row_of(const World& world, const Outcome& context) {
  return {&world.at(context).p, &world.at(context).raw};
}

/// True if the criterion accepts this token after these: judged by the rule that walks, on one copied child.
bool accepts(const char* criterion, const World& world, const Outcome& context, Token token) {
  Draft draft;
  draft.reset(0);
  draft.add(token, 0);
  Acceptance acceptance;
  accept(
      find_acceptance_rule(criterion), kLoose, draft, [&](int) { return row_of(world, context); },
      Coins(1, 1), 0, acceptance);
  return !acceptance.path.empty();
}

/// The best path, found by looking at every node.
struct LongestPath {
  std::size_t length = 0;
  double log_p = 0;
};
LongestPath longest_by_hand(const char* criterion, const World& world, const TokenTree& tree) {
  LongestPath best;
  std::vector<int> path;
  for (int node = 1; node < tree.size(); ++node) {
    tree.path_to(node, path);
    Outcome context;
    double log_p = 0;
    bool all = true;
    for (const int step : path) {
      all = all && accepts(criterion, world, context, tree.token(step));
      log_p += std::log(criterion_row(row_of(world, context)).prob(tree.token(step)));
      context.push_back(tree.token(step));
    }
    if (!all || path.size() < best.length || (path.size() == best.length && log_p <= best.log_p)) continue;
    best = {path.size(), log_p};
  }
  return best;
}

TEST(LongestPath, IsTheLongestAndOfEqualOnesTheMostProbable) {
  std::mt19937 random(71);
  int further = 0, deep = 0;
  for (int i = 0; i < 60; ++i) {
    for (const bool greedy : {false, true}) {
      const World world = random_world(4, 4, i % 3 == 0 ? Rows::zeros : Rows::generic, greedy, random);
      for (const char* criterion : kCriteria) {
        Step step, walked;
        const Coins coins(static_cast<std::uint64_t>(i), 5);
        run_step(world, {{3, 2, 2}}, Draws::iid, rule_of(criterion), kLoose, coins, step);
        run_step(world, {{3, 2, 2}}, Draws::iid, find_acceptance_rule(criterion), kLoose, coins, walked);
        const LongestPath best = longest_by_hand(criterion, world, step.draft.tree);
        const std::vector<int>& path = step.acceptance.path;
        ASSERT_EQ(path.size(), best.length) << criterion;
        Outcome context;
        double log_p = 0;
        int parent = 0;
        for (const int node : path) {
          ASSERT_EQ(step.draft.tree.parent(node), parent);
          const Token token = step.draft.tree.token(node);
          log_p += std::log(criterion_row(row_of(world, context)).prob(token));
          context.push_back(token);
          parent = node;
        }
        ASSERT_NEAR(log_p, best.log_p, 1e-12) << criterion;
        ASSERT_EQ(step.acceptance.bonus, path.size() == 3);
        ASSERT_GE(path.size(), walked.acceptance.path.size());
        further += path.size() > walked.acceptance.path.size() ? 1 : 0;
        deep += path.size() == 3 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(further, 20) << "the walk runs into dead ends";
  EXPECT_GT(deep, 50);
}

TEST(LongestPath, IsTheWalkOnAChain) {
  std::mt19937 random(73);
  for (const Rows rows : kAllRows) {
    for (const bool greedy : {false, true}) {
      const World world = random_world(4, 4, rows, greedy, random);
      for (const char* criterion : kCriteria) {
        for (std::uint64_t seed = 0; seed < 50; ++seed) {
          Step step, walked;
          run_step(world, {{1, 1, 1}}, Draws::iid, rule_of(criterion), kLoose, Coins(seed, 6), step);
          run_step(world, {{1, 1, 1}}, Draws::iid, find_acceptance_rule(criterion), kLoose, Coins(seed, 6),
                   walked);
          ASSERT_EQ(step.emitted, walked.emitted);
          ASSERT_EQ(step.acceptance.bonus, walked.acceptance.bonus);
          ASSERT_EQ(step.acceptance.tested.size(), walked.acceptance.tested.size());
          for (std::size_t i = 0; i < step.acceptance.tested.size(); ++i) {
            ASSERT_EQ(step.acceptance.tested[i].node, walked.acceptance.tested[i].node);
            ASSERT_EQ(step.acceptance.tested[i].accepted, walked.acceptance.tested[i].accepted);
            ASSERT_EQ(step.acceptance.tested[i].expected, walked.acceptance.tested[i].expected);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace speclab::enumerate::longest_path_test
