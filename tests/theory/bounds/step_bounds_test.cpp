#include "core/theory/step_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/theory/audit/toy_step.h"
#include "core/theory/verifier_bounds.h"

namespace speclab::theory::step_bounds_test {
namespace {

using enumerate::Draws;
using enumerate::Shape;
using enumerate::World;

/// Means of E[tau] by the token rule and by whole paths over all drafts of a shape.
struct Means {
  double by_token = 0, by_path = 0, first_best = 0;
};
Means mean_bounds(const World& world, const Shape& shape, Draws draws) {
  Means out;
  StepBounds bounds;
  enumerate::walk(
      [&](const Coins& coins) {
        enumerate::Step step;
        run_step(world, shape, draws, find_acceptance_rule("rejection"), {}, coins, step,
                 [&](const AcceptanceRule&, const RuleOptions&, const Draft& draft, const TargetRows& rows,
                     const Coins&, std::int64_t, Acceptance& none) {
                   bounds = step_bounds(draft, rows, {}, {});
                   none.path.clear();
                   none.next = 0;
                 });
      },
      [&](double probability) {
        out.by_token += probability * StepBounds::tokens(bounds.by_token);
        out.by_path += probability * StepBounds::tokens(bounds.by_path);
        out.first_best += probability * bounds.best.at(0).value_or(-1);
      });
  return out;
}

TEST(StepBounds, GoldenChains) {
  const World world = enumerate::golden_world(6);
  const double token[] = {1.75, 2.3125, 2.734375, 3.05078125}, path[] = {1.75, 2.3675, 2.883625, 3.32580625};
  for (std::size_t gamma = 1; gamma <= 4; ++gamma) {
    const Means means = mean_bounds(world, {std::vector<int>(gamma, 1)}, Draws::iid);
    EXPECT_NEAR(means.by_token, token[gamma - 1], 1e-6);
    EXPECT_NEAR(means.by_path, path[gamma - 1], 1e-6);
    EXPECT_NEAR(means.by_path,
                best_chain_tokens(std::vector{.55, .25, .15, .05}, std::vector{.4, .35, .05, .2},
                                  static_cast<int>(gamma)),
                1e-6)
        << "the optimum";
    EXPECT_NEAR(means.first_best, .75, 1e-6);
  }
}

TEST(StepBounds, GoldenTrees) {
  const World world = enumerate::golden_world(3);
  struct Golden {
    std::vector<int> widths;
    Draws draws;
    double token, path;
  };
  for (const Golden& golden : {Golden{{2}, Draws::iid, 1.8625, 1.8625},
                               {{2}, Draws::swor, 1.902067, 1.902067},
                               {{2, 1}, Draws::iid, 2.509375, 2.564375},
                               {{2, 1}, Draws::swor, 2.578618, 2.634310},
                               {{2, 2}, Draws::iid, 2.606406, 2.633656},
                               {{2, 2}, Draws::swor, 2.715793, 2.734356},
                               {{3, 1}, Draws::iid, 2.608906, 2.666156},
                               {{3, 1}, Draws::swor, 2.624150, 2.683592}}) {
    const Means means = mean_bounds(world, {golden.widths}, golden.draws);
    EXPECT_NEAR(means.by_token, golden.token, 2e-6);
    EXPECT_NEAR(means.by_path, golden.path, 2e-6);
  }
}

/// P(a step emits at least i + 2 tokens) by a rule, over the coins of the rule.
std::vector<double> enumerated(const char* rule, const Draft& draft, const TargetRows& rows, TokenSpan eos) {
  std::vector<double> kept(static_cast<std::size_t>(draft.tree.max_depth()), 0.0);
  std::size_t length = 0;
  enumerate::walk(
      [&](const Coins& coins) {
        Acceptance out;
        accept(find_acceptance_rule(rule), {}, draft, rows, coins, 0, out);
        length = 0;
        while (length < out.path.size() &&
               std::ranges::find(eos, draft.tree.token(out.path[length])) == eos.end())
          ++length;
      },
      [&](double probability) {
        for (std::size_t i = 0; i < length; ++i) kept[i] += probability;
      });
  return kept;
}

void expect_list(const std::vector<double>& found, const std::vector<double>& wanted,
                 const std::string& where) {
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(i < found.size() ? found[i] : 0, wanted[i], 1e-6) << where << " token " << i + 1;
}

// For each drafted tree the expectations are those of the real rules, over all of their coins.
TEST(StepBounds, EqualTheRulesOnRandomTables) {
  std::mt19937 random(7);
  for (const auto kind : enumerate::kAllRows) {
    for (const auto draws : enumerate::kAllDraws) {
      for (const Shape& shape :
           {Shape{{2, 2}}, Shape{{3, 1}}, Shape{{1, 2}}, Shape{{2, 2}, .3}, Shape{{1, 1, 1}}}) {
        const World world = enumerate::random_world(3, 4, kind, kind == enumerate::Rows::one_hot_p, random);
        for (std::uint64_t trial = 0; trial < 3; ++trial) {
          const std::vector<Token> eos = trial == 2 ? std::vector<Token>{1} : std::vector<Token>{};
          enumerate::Step step;
          run_step(
              world, shape, draws, find_acceptance_rule("traversal"), {}, Coins(trial, 1), step,
              [&](const AcceptanceRule&, const RuleOptions&, const Draft& draft, const TargetRows& rows,
                  const Coins&, std::int64_t, Acceptance& none) {
                const StepBounds bounds = step_bounds(draft, rows, {}, eos);
                const std::string where =
                    std::to_string(static_cast<int>(kind)) + " " + std::to_string(static_cast<int>(draws));
                expect_list(bounds.by_token, enumerated("rejection", draft, rows, eos), "rejection " + where);
                if (!bounds.chain)
                  expect_list(bounds.by_path, enumerated("traversal", draft, rows, eos),
                              "traversal " + where);
                none.path.clear();
                none.next = 0;
              });
        }
      }
    }
  }
}

// On a chain the numbers of whole paths are averages over the later tokens: the mean over all drafts is that
// of the rule "block", with drafts that stop by what was drafted too.
TEST(StepBounds, ChainsOfRandomTablesHaveTheMeanOfBlock) {
  std::mt19937 random(11);
  for (const auto kind : enumerate::kAllRows) {
    for (const Shape& shape : {Shape{{1, 1, 1}}, Shape{{1, 1, 1}, .4}}) {
      const World world = enumerate::random_world(3, 4, kind, false, random);
      double tokens = 0;
      std::size_t emitted = 0;
      enumerate::walk(
          [&](const Coins& coins) {
            enumerate::Step step;
            run_step(world, shape, Draws::iid, find_acceptance_rule("block"), {}, coins, step);
            emitted = step.emitted.size();
          },
          [&](double probability) { tokens += probability * static_cast<double>(emitted); });
      EXPECT_NEAR(mean_bounds(world, shape, Draws::iid).by_path, tokens, 1e-6);
    }
  }
}

TEST(StepBounds, OneHotDraftsGainNothing) {
  std::mt19937 random(13);
  const World world = enumerate::random_world(4, 4, enumerate::Rows::generic, false, random);
  const Means means = mean_bounds(world, {{1, 1, 1}}, Draws::one_hot);
  EXPECT_NEAR(means.by_path, means.by_token, 1e-12);
}

/// Calls visit(outcome, bounds, tokens that the rule `rule` itself keeps) for each of many steps.
template <class Visit>
void for_paired_steps(const World& world, const Shape& shape, Draws draws, const char* rule,
                      const std::vector<Token>& eos, int count, const Visit& visit) {
  for (int i = 0; i < count; ++i) {
    enumerate::Step step;
    run_step(world, shape, draws, find_acceptance_rule(rule), {}, Coins(23, static_cast<std::uint64_t>(i)),
             step,
             [&](const AcceptanceRule& used, const RuleOptions& options, const Draft& draft,
                 const TargetRows& rows, const Coins& coins, std::int64_t position, Acceptance& out) {
               accept(used, options, draft, rows, coins, position, out);
               const auto outcome = paired_outcome(draft, rows, coins, position, eos);
               ASSERT_TRUE(outcome);
               visit(*outcome, step_bounds(draft, rows, {}, eos), static_cast<int>(out.path.size()));
             });
  }
}

struct Mean {
  double sum = 0, squares = 0, count = 0;
  void add(double x) { sum += x, squares += x * x, ++count; }
  double value() const { return sum / count; }
  double standard_error() const { return std::sqrt((squares / count - value() * value()) / count); }
};

// Over many coins the drawn gain has the expected gain of the same rows as its mean.
TEST(PairedOutcomes, TheMeanGainIsTheExpectedGain) {
  std::mt19937 random(29);
  const World golden = enumerate::golden_world(4),
              tables = enumerate::random_world(4, 5, enumerate::Rows::generic, false, random);
  for (const World* world : {&golden, &tables}) {
    for (const std::vector<Token>& eos : {std::vector<Token>{}, std::vector<Token>{2}}) {
      Mean gain, difference, token, path;
      for_paired_steps(*world, {{1, 1, 1}}, Draws::iid, "rejection", eos, 20'000,
                       [&](const PairedOutcome& outcome, const StepBounds& bounds, int) {
                         const double by_token = StepBounds::tokens(bounds.by_token) - 1,
                                      by_path = StepBounds::tokens(bounds.by_path) - 1;
                         gain.add(outcome.by_path - outcome.by_token);
                         difference.add(outcome.by_path - outcome.by_token - (by_path - by_token));
                         token.add(outcome.by_token - by_token);
                         path.add(outcome.by_path - by_path);
                       });
      for (const Mean* mean : {&difference, &token, &path})
        EXPECT_LT(std::abs(mean->value()), 4 * mean->standard_error());
      if (world == &golden && eos.empty()) {
        EXPECT_NEAR(gain.value(), .14925, 4 * gain.standard_error());
      }
    }
  }
}

// In the engine the rule "block" takes the same coins, so its drawn tokens are those that it kept.
TEST(PairedOutcomes, AreThoseOfTheEngineForBlock) {
  const World world = enumerate::golden_world(4);
  int kept_some = 0;
  for_paired_steps(world, {{1, 1, 1}}, Draws::iid, "block", {}, 500,
                   [&](const PairedOutcome& outcome, const StepBounds&, int kept) {
                     EXPECT_EQ(outcome.by_path, kept);
                     kept_some += kept > 0;
                   });
  EXPECT_GT(kept_some, 100);
}

// With one drafted token, and with a greedy target, the two rules decide alike, coin by coin. A draft whose
// tokens are copies gains nothing on average.
TEST(PairedOutcomes, AgreeWhereTheRulesAreTheSame) {
  std::mt19937 random(31);
  const World sampled = enumerate::random_world(4, 5, enumerate::Rows::generic, false, random);
  const World greedy = enumerate::random_world(4, 5, enumerate::Rows::one_hot_p, true, random);
  int kept = 0;
  const auto agree = [&](const PairedOutcome& outcome, const StepBounds&, int) {
    EXPECT_EQ(outcome.by_path, outcome.by_token);
    kept += outcome.by_path;
  };
  for_paired_steps(sampled, {{1}}, Draws::iid, "rejection", {}, 500, agree);
  for_paired_steps(sampled, {{1}}, Draws::one_hot, "rejection", {}, 500, agree);
  for_paired_steps(greedy, {{1, 1, 1}}, Draws::iid, "rejection", {}, 500, agree);
  EXPECT_GT(kept, 300);
  Mean gain;
  for_paired_steps(sampled, {{1, 1, 1}}, Draws::one_hot, "rejection", {}, 20'000,
                   [&](const PairedOutcome& outcome, const StepBounds& bounds, int) {
                     gain.add(outcome.by_path - outcome.by_token);
                     EXPECT_NEAR(StepBounds::tokens(bounds.by_path), StepBounds::tokens(bounds.by_token),
                                 1e-12);
                   });
  EXPECT_LT(std::abs(gain.value()), 4 * gain.standard_error());
}

TEST(PairedOutcomes, AreOfChainsOnly) {
  const World world = enumerate::golden_world(3);
  enumerate::Step step;
  run_step(world, {{2, 1}}, Draws::iid, find_acceptance_rule("rejection"), {}, Coins(1, 1), step,
           [&](const AcceptanceRule&, const RuleOptions&, const Draft& draft, const TargetRows& rows,
               const Coins& coins, std::int64_t position, Acceptance& none) {
             EXPECT_FALSE(paired_outcome(draft, rows, coins, position, {}));
             none.path.clear();
             none.next = 0;
           });
}

// A copy that equals the drawn child has no node of its own. It counts as a child all the same, because the
// bound is an average over the draws.
TEST(StepBounds, CopiesBesideDrawsCountWhateverWasDrawn) {
  Distribution p, q;
  p.assign_weights(std::vector{.55, .25, .15, .05});
  q.assign_weights(std::vector{.4, .35, .05, .2});
  const TargetRows rows = [&](int) { return TargetRow{&p, &p}; };
  constexpr Token kCopied = 2;
  const auto first_bound = [&](Token drawn, bool copies_ignore_draws) {
    Draft draft;
    draft.reset(0);
    int index = -1;
    draft.new_q(&index) = q;
    const int node = draft.add(drawn, 0, index);
    if (drawn == kCopied) draft.copied_too = {node};
    else draft.add(kCopied, 0);
    draft.copies_ignore_draws = copies_ignore_draws;
    return step_bounds(draft, rows, {}, {}).best.at(0);
  };
  // The minimum of p(H) - q(H) is at H = {1, 2, 3}, where p has .45 and q has .6. So the bound is 1 - .15.
  for (Token drawn = 0; drawn < 4; ++drawn) {
    EXPECT_NEAR(first_bound(drawn, true).value(), .85, 1e-6) << drawn;
    EXPECT_FALSE(first_bound(drawn, false)) << drawn;
  }
}

TEST(StepBounds, NamesTheOptimumOfVisitedPositionsOnly) {
  const World world = enumerate::golden_world(3);
  enumerate::Step step;
  run_step(world, {{2, 2}}, Draws::iid, find_acceptance_rule("rejection"), {}, Coins(1, 1), step,
           [&](const AcceptanceRule&, const RuleOptions&, const Draft& draft, const TargetRows& rows,
               const Coins&, std::int64_t, Acceptance& none) {
             std::vector<int> children, below;
             draft.tree.children(0, children);
             draft.tree.children(children[1], below);
             EXPECT_EQ(step_bounds(draft, rows, {}, {}).best.size(), 1u);
             EXPECT_EQ(step_bounds(draft, rows, std::vector{children[1]}, {}).best.size(), 2u);
             const std::vector<Token> end = {draft.tree.token(children[1])};
             EXPECT_EQ(step_bounds(draft, rows, std::vector{children[1]}, end).best.size(), 1u);
             EXPECT_EQ(step_bounds(draft, rows, std::vector{children[1], below[0]}, {}).best.size(), 2u)
                 << "a leaf has no position to visit";
             EXPECT_NEAR(*step_bounds(draft, rows, {}, {}).best[0], .9475, 1e-6);
             none.path.clear();
             none.next = 0;
           });
}

}  // namespace
}  // namespace speclab::theory::step_bounds_test
