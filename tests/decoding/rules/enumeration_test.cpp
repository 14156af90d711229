// Proofs of losslessness: the verifier of the decode loop with coins that walk every branch.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/theory/audit/enumerate.h"
#include "core/theory/audit/toy_step.h"

namespace speclab::enumerate::enumeration_test {
namespace {

struct Case {
  int vocab;
  Shape shape;
};

/// Chains and trees with a small enumeration: depth <= 3, up to three children.
const Case kCases[] = {{5, {{1}}},
                       {4, {{1, 1}}},
                       {3, {{1, 1, 1}}},
                       {5, {{2}}},
                       {4, {{3}}},
                       {3, {{2, 1}}},
                       {3, {{1, 2}}},
                       {2, {{2, 2}}},
                       {2, {{3, 1}}},
                       // These stop where a drafted token has a small probability.
                       {4, {{1, 1}, .3}},
                       {3, {{2, 1}, .4}},
                       {2, {{2, 2}, .5}}};

std::string name(const AcceptanceRule& rule, Rows rows, Draws draws, const Shape& shape) {
  return fmt::format("{}, rows {}, draws {}, widths {}, least {}, children {}", rule.name,
                     static_cast<int>(rows), static_cast<int>(draws), fmt::join(shape.widths, " "),
                     shape.least, fmt::join(shape.children, " "));
}

/// Largest difference between the law of what a step (completed to depth + 1 tokens) emits and the target's
/// joint law.
double largest_error(const World& world, const Shape& shape, Draws draws, const AcceptanceRule& rule,
                     double least, double* pruned) {
  const int length = static_cast<int>(shape.widths.size()) + 1;
  const RuleOptions options{.epsilon = 1};  // like the defaults, with which the lenient rules are lossless
  const Law law = law_of(
      [&](const Coins& coins) { return emit(world, shape, draws, rule, options, length, coins); }, least);
  *pruned = law.pruned;
  const std::map<Outcome, double> target = target_law(world, length);
  double worst = 0;
  for (const auto& [outcome, mass] : target) {
    const auto it = law.mass.find(outcome);
    worst = std::max(worst, std::abs(mass - (it == law.mass.end() ? 0 : it->second)));
  }
  for (const auto& [outcome, mass] : law.mass) {
    if (target.count(outcome) == 0) worst = std::max(worst, mass);
  }
  return worst;
}

class Lossless : public testing::TestWithParam<std::string> {};

TEST_P(Lossless, EmitsTheTargetsJointLaw) {
  const AcceptanceRule& rule = find_acceptance_rule(GetParam());
  ASSERT_EQ(rule.loss({.epsilon = 1}, {.temperature = 1}), LossClass::l1);
  std::mt19937 random(17);
  for (const Case& c : kCases) {
    for (const Rows rows : kAllRows) {
      const World world =
          random_world(c.vocab, static_cast<int>(c.shape.widths.size()) + 1, rows, false, random);
      for (const Draws draws : kAllDraws) {
        if (!takes(rule, c.shape, draws, rows)) continue;
        double pruned = 0;
        EXPECT_LE(largest_error(world, c.shape, draws, rule, 0, &pruned), 1e-12)
            << name(rule, rows, draws, c.shape);
      }
    }
  }
}

/// The rules that claim to be lossless, of all families. Shared noise has no branches, and `iterative` needs
/// a cut (below).
std::vector<std::string> lossless_rules() {
  std::vector<std::string> names;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.loss({.epsilon = 1}, {.temperature = 1}) == LossClass::l1 && rule.name != "iterative" &&
        rule.coins == CoinUse::independent)
      names.emplace_back(rule.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Rules, Lossless, testing::ValuesIn(lossless_rules()),
                         [](const auto& info) { return info.param; });

TEST(LosslessRules, AreEnumerated) { EXPECT_GE(lossless_rules().size(), 14u); }

constexpr int kIrregularTrees = 6;

/// Random trees of depth 2 in which nodes of depth 1 have different numbers of children. A node has at most
/// three, and the trees are so small that few branches are left.
std::vector<Case> irregular_trees() {
  std::mt19937 random(43);
  std::vector<Case> trees;
  while (trees.size() < kIrregularTrees) {
    const int first = 2 + static_cast<int>(random() % 2);
    std::vector<int> children = {first};
    for (int i = 0; i < first; ++i) children.push_back(static_cast<int>(random() % 4));
    const auto [least, most] = std::minmax_element(children.begin() + 1, children.end());
    const int nodes = std::accumulate(children.begin(), children.end(), 0);
    if (*least == *most || nodes > 5) continue;
    const int vocab = nodes == 3 ? 5 : nodes == 4 ? 4 : 3;
    trees.push_back({vocab, Shape{.widths = {first, *most}, .children = children}});
  }
  return trees;
}

/// Paths whose lengths are different and random. They depend on the drafted tokens, because a rule that
/// judges independent paths refuses paths with equal tokens and different lengths.
std::vector<Case> irregular_paths() {
  std::mt19937 random(53);
  std::vector<Case> paths;
  while (paths.size() < kIrregularTrees) {
    const int count = 2 + static_cast<int>(random() % 2);
    const double least = .2 + .3 * static_cast<double>(random() % 1000) / 1000;
    paths.push_back({count == 2 ? 4 : 3, Shape{.widths = {count, 1}, .least = least}});
  }
  return paths;
}

class LosslessOnIrregularTrees : public testing::TestWithParam<std::string> {};

TEST_P(LosslessOnIrregularTrees, EmitsTheTargetsJointLaw) {
  const AcceptanceRule& rule = find_acceptance_rule(GetParam());
  std::mt19937 random(47);
  int judged = 0, number = 0;
  for (const Case& c : rule.independent_paths_only ? irregular_paths() : irregular_trees()) {
    const Rows rows = number++ % 2 == 0 ? Rows::generic : Rows::zeros;
    const World world = random_world(c.vocab, 3, rows, false, random);
    for (const Draws draws : kAllDraws) {
      if (!takes(rule, c.shape, draws, rows)) continue;
      double pruned = 0;
      EXPECT_LE(largest_error(world, c.shape, draws, rule, 0, &pruned), 1e-12)
          << name(rule, rows, draws, c.shape);
      ++judged;
    }
  }
  EXPECT_GE(judged, kIrregularTrees);
}

std::vector<std::string> lossless_tree_rules() {
  std::vector<std::string> names = lossless_rules();
  std::erase_if(names, [](const std::string& rule) { return find_acceptance_rule(rule).chains_only; });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Rules, LosslessOnIrregularTrees, testing::ValuesIn(lossless_tree_rules()),
                         [](const auto& info) { return info.param; });

// The rule draws until a token is accepted, so runs are cut at 1e-9, and a mass may miss at most the cut
// mass. Envelopes near 1 keep it small: q = p (1 + at most 50 %).
TEST(Iterative, EmitsTheTargetsLawToWithinTheMassThatWasCut) {
  const AcceptanceRule& rule = find_acceptance_rule("iterative");
  std::mt19937 random(23);
  for (int i = 0; i < 6; ++i) {
    World world = random_world(3, 2, Rows::generic, false, random);
    for (auto& [context, row] : world.rows) {
      std::vector<double> q;
      row.p.probabilities(q);
      for (double& w : q) w *= 1 + .25 * static_cast<double>(random() % 3);
      row.q[0].assign_weights(q);
    }
    for (const Draws draws : {Draws::iid, Draws::mixed}) {
      double pruned = 0;
      const double error = largest_error(world, {{1}}, draws, rule, 1e-9, &pruned);
      EXPECT_LE(error, pruned + 1e-12);
      EXPECT_LT(pruned, 1e-4);
    }
  }
  // If q misses support of p, no draft is ever accepted, and the loop must not be entered.
  World world = golden_world(2);
  for (auto& [context, row] : world.rows) row.q[0].assign_weights(std::vector<double>{0, .5, .3, .2});
  double pruned = 0;
  EXPECT_LE(largest_error(world, {{1}}, Draws::iid, rule, 0, &pruned), 1e-12);
}

// A rule says whether it emits a copied token exactly when it accepts it. A replay of copied drafts needs it.
TEST(CopiedChildren, ARuleSaysWhetherItAcceptsWhatItEmits) {
  const RuleOptions loose{.lenience = .5, .b = .5, .epsilon = .5};
  std::mt19937 random(47);
  const World world = random_world(4, 2, Rows::generic, false, random);
  for (const AcceptanceRule& rule : acceptance_rules()) {
    const bool lossless = rule.loss(loose, {.temperature = 1}) == LossClass::l1;
    if (!lossless || rule.test == nullptr || rule.coins != CoinUse::independent) {
      EXPECT_FALSE(rule.accepts_what_it_emits) << rule.name << " is not one of the rules that can say so";
      continue;
    }
    Step step;
    double rejected_and_emitted = 0;
    walk([&](const Coins& coins) { run_step(world, {{3}}, Draws::one_hot, rule, {}, coins, step); },
         [&](double probability) {
           const bool copied = step.emitted[0] < 3;  // the children are the tokens 0, 1 and 2
           if (copied && step.acceptance.path.empty()) rejected_and_emitted += probability;
         });
    EXPECT_EQ(rule.accepts_what_it_emits, rejected_and_emitted < 1e-9) << rule.name;
  }
}

// Options under which a rule claims to be token-identical to greedy decoding at temperature 0.
std::vector<RuleOptions> greedy_options(const AcceptanceRule& rule) {
  std::vector<RuleOptions> out;
  for (RuleOptions options : {RuleOptions{}, RuleOptions{.lenience = .5}, RuleOptions{.b = .3},
                              RuleOptions{.beta = 2}, RuleOptions{.gap = 1}, RuleOptions{.epsilon = .4}}) {
    if (rule.loss(options, {.temperature = 0}) == LossClass::l2) out.push_back(options);
  }
  return out;
}

/// True if a rule with its default options can emit another text than greedy decoding at temperature 0.
bool leaves_the_greedy_text(const AcceptanceRule& rule) {
  std::mt19937 random(30);
  for (const Case& c : kCases) {
    const int length = static_cast<int>(c.shape.widths.size()) + 1;
    const World world = random_world(c.vocab, length, Rows::generic, true, random);
    const std::map<Outcome, double> target = target_law(world, length);
    for (const Draws draws : kAllDraws) {
      if (!takes(rule, c.shape, draws, Rows::generic)) continue;
      const Law law = law_of([&](const Coins& coins) {
        return emit(world, c.shape, draws, rule, RuleOptions{}, length, coins);
      });
      for (const auto& [outcome, mass] : law.mass) {
        if (mass > 0 && !target.contains(outcome)) return true;
      }
    }
  }
  return false;
}

// A rule that is L2 for none of these options claims to be lossy at temperature 0. Then it must be able to
// emit another text than greedy decoding.
TEST(TemperatureZero, L2RulesEmitTheGreedyTokens) {
  std::mt19937 random(29);
  for (const AcceptanceRule& rule : acceptance_rules()) {
    const std::vector<RuleOptions> all = greedy_options(rule);
    if (all.empty()) {
      EXPECT_TRUE(leaves_the_greedy_text(rule)) << rule.name << " claims to be lossy at temperature 0";
    }
    for (const RuleOptions& options : all) {
      for (const Case& c : kCases) {
        const int length = static_cast<int>(c.shape.widths.size()) + 1;
        for (const Rows rows : kAllRows) {
          const World world = random_world(c.vocab, length, rows, true, random);
          const std::map<Outcome, double> target = target_law(world, length);
          ASSERT_EQ(target.size(), 1u);
          for (const Draws draws : kAllDraws) {
            if (!takes(rule, c.shape, draws, rows)) continue;
            const Law law = law_of([&](const Coins& coins) {
              return emit(world, c.shape, draws, rule, options, length, coins);
            });
            ASSERT_EQ(law.mass.size(), 1u) << name(rule, rows, draws, c.shape);
            EXPECT_EQ(law.mass.begin()->first, target.begin()->first) << name(rule, rows, draws, c.shape);
          }
        }
      }
    }
  }
}

/// Parameters that make each rule lossy.
const RuleOptions kLossy[] = {
    {.lenience = .5, .b = .5, .beta = 2, .gap = .8, .epsilon = .4, .delta = .9, .theta = .2},
    {.lenience = .9, .b = .1, .beta = 1, .gap = 0, .epsilon = .9, .delta = .3, .theta = .3, .top_k = 2},
    {}};

// Compares the law of the token after the pending one, for a single drafted child, with the closed form; and
// the probability that the child is accepted with `expected` of the rule and of the verdict.
TEST(OneChild, OutputLawAndExpectedAcceptanceAreTheEnumeratedOnes) {
  std::mt19937 random(31);
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.name == "coupled" || rule.name == "iterative")
      continue;  // there is no noise with scripted coins; or its runs do not end
    for (const RuleOptions& options : kLossy) {
      for (const bool greedy : {false, true}) {
        for (const Rows rows : kAllRows) {
          for (const Draws draws : {Draws::iid, Draws::one_hot}) {
            const World world = random_world(4, 2, rows, greedy, random);
            const World::Row& row = world.at({});
            const TargetRow target{&row.p, &row.raw};
            const Distribution* q = draws == Draws::iid ? &row.q[0] : nullptr;
            const std::string label = name(rule, rows, draws, {{1}}) + (greedy ? " T = 0" : " T > 0");
            Step step;
            std::vector<double> emitted(4, 0.0), law;
            double accepted = 0, expected_seen = 0;
            walk([&](const Coins& coins) { run_step(world, {{1}}, draws, rule, options, coins, step); },
                 [&](double probability) {
                   // After an acceptance the bonus is a second token; only the first one belongs to this law.
                   emitted[step.emitted[0]] += probability;
                   accepted += step.acceptance.path.empty() ? 0 : probability;
                   expected_seen += probability * step.acceptance.tested.at(0).expected;
                   EXPECT_NEAR(step.acceptance.tested[0].q,
                               q != nullptr ? q->prob(step.draft.tree.token(1)) : 1, 0);
                 });
            rule.output_law(target, q, 0, options, law);
            for (Token x = 0; x < 4; ++x) EXPECT_NEAR(emitted[x], law[x], 1e-12) << label << " token " << x;
            EXPECT_NEAR(accepted, rule.expected(target, q, 0, options), 1e-12) << label;
            EXPECT_NEAR(accepted, expected_seen, 1e-12) << label;
          }
        }
      }
    }
  }
}

// sum over the runs of [child j tested] * expected_j = P(child j accepted), for each j of a node with several
// children.
TEST(ManyChildren, ExpectedAcceptanceIsConditionalOnTheEarlierRejections) {
  std::mt19937 random(37);
  for (const AcceptanceRule& rule : acceptance_rules()) {
    // The rules with the longest path judge all children and then accept one of those that pass.
    if (rule.name == "coupled" || rule.name == "iterative" || rule.name.ends_with("_longest")) continue;
    for (const Rows rows : kAllRows) {
      for (const Draws draws : kAllDraws) {
        if (!takes(rule, {{3}}, draws, rows)) continue;
        const World world = random_world(4, 2, rows, false, random);
        Step step;
        std::vector<double> accepted(4), expected(4);
        walk([&](const Coins& coins) { run_step(world, {{3}}, draws, rule, kLossy[0], coins, step); },
             [&](double probability) {
               for (const Acceptance::Tested& t : step.acceptance.tested) {
                 accepted[t.node] += t.accepted ? probability : 0;
                 expected[t.node] += probability * t.expected;
               }
             });
        // These rules choose a child by its token: this holds for the chosen child.
        const bool by_token = rule.independent_paths_only || rule.name == "k_seq";
        if (by_token) {
          accepted[1] += accepted[2] + accepted[3];
          expected[1] += expected[2] + expected[3];
        }
        for (int j = 1; j <= (by_token ? 1 : 3); ++j)
          EXPECT_NEAR(accepted[j], expected[j], 1e-12) << name(rule, rows, draws, {{3}}) << " child " << j;
      }
    }
  }
}

// A record counts a token as tested if all tokens before it were accepted. Acceptance rates are shares of
// these tests, at most one on each depth of a chain.
TEST(Tested, AreTheChildrenOfAcceptedNodes) {
  std::mt19937 random(39);
  const World world = random_world(4, 4, Rows::generic, false, random);
  for (const AcceptanceRule& rule : acceptance_rules()) {
    int rejected = 0;
    for (const Shape& shape : {Shape{{1, 1, 1}}, Shape{{3, 1, 1}}, Shape{{2, 2, 1}}}) {
      if (!takes(rule, shape, Draws::iid, Rows::generic)) continue;
      for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Step step;
        run_step(world, shape, Draws::iid, rule, kLossy[0], Coins(seed, 1), step);
        std::vector<int> accepted = {0};
        for (const Acceptance::Tested& tested : step.acceptance.tested) {
          const int parent = step.draft.tree.parent(tested.node);
          ASSERT_TRUE(std::ranges::find(accepted, parent) != accepted.end())
              << rule.name << ", node " << tested.node << " below a node that was not accepted";
          if (tested.accepted) accepted.push_back(tested.node);
          rejected += tested.accepted ? 0 : 1;
        }
        accepted.erase(accepted.begin());
        ASSERT_EQ(accepted, step.acceptance.path) << rule.name;
      }
    }
    EXPECT_GT(rejected, 0) << rule.name;
  }
}

TEST(DraftEqualsTarget, IsAcceptedAtEveryPosition) {
  std::mt19937 random(41);
  for (const char* rule_name :
       {"rejection", "lenience", "uniform_b", "distillspec_lin", "non_iterative", "iterative", "block",
        "traversal", "k_seq", "rejection_any_order", "multi_path_block"}) {
    const AcceptanceRule& rule = find_acceptance_rule(rule_name);
    const World world = random_world(4, 3, Rows::equal, false, random);
    Step step;
    walk(
        [&](const Coins& coins) { run_step(world, {{1, 1}}, Draws::iid, rule, {.epsilon = 1}, coins, step); },
        [&](double) {
          EXPECT_EQ(step.acceptance.path.size(), 2u) << rule_name;
          EXPECT_TRUE(step.acceptance.bonus);
        });
  }
}

double accepted_mass(const char* rule, const Shape& shape, Draws draws, const RuleOptions& options = {}) {
  const World world = golden_world(2);
  Step step;
  double accepted = 0;
  walk(
      [&](const Coins& coins) {
        run_step(world, shape, draws, find_acceptance_rule(rule), options, coins, step);
      },
      [&](double probability) { accepted += step.acceptance.path.empty() ? 0 : probability; });
  return accepted;
}

double law_distance(const char* rule, const RuleOptions& options) {
  const World world = golden_world(2);
  const World::Row& row = world.at({});
  std::vector<double> law;
  find_acceptance_rule(rule).output_law({&row.p, &row.raw}, &row.q[0], -1, options, law);
  double sum = 0;
  for (Token x = 0; x < 4; ++x) sum += std::abs(law[x] - row.p.prob(x)) / 2;
  return sum;
}

// Golden pair: p = [.55, .25, .15, .05], q = [.4, .35, .05, .2].
TEST(Golden, AcceptanceOfTreesAndLossOfLenientRules) {
  EXPECT_NEAR(accepted_mass("rejection", {{1}}, Draws::iid), .75, 1e-7);
  EXPECT_NEAR(accepted_mass("rejection", {{2}}, Draws::iid), .8625, 5e-5);
  EXPECT_NEAR(accepted_mass("rejection", {{3}}, Draws::iid), .9194, 5e-5);
  EXPECT_NEAR(accepted_mass("rejection", {{2}}, Draws::swor), .9021, 5e-5);
  EXPECT_NEAR(accepted_mass("rejection", {{3}}, Draws::swor), .9281, 5e-5);
  EXPECT_NEAR(accepted_mass("rejection", {{2}}, Draws::one_hot), .80, 1e-7);
  EXPECT_NEAR(accepted_mass("rejection", {{3}}, Draws::one_hot), .95, 1e-7);
  EXPECT_NEAR(accepted_mass("sample_match", {{1}}, Draws::iid), .325, 1e-7);
  EXPECT_NEAR(accepted_mass("one_hot_rejection", {{1}}, Draws::iid), .325, 1e-7);
  EXPECT_NEAR(accepted_mass("non_iterative", {{1}}, Draws::iid), 1 / 3.0, 1e-7);
  EXPECT_NEAR(accepted_mass("lenience", {{1}}, Draws::iid, {.lenience = .5}), .90, 1e-7);
  EXPECT_NEAR(accepted_mass("uniform_b", {{1}}, Draws::iid, {.b = .5}), .90, 1e-7);
  EXPECT_NEAR(law_distance("lenience", {.lenience = .5}), .1636, 5e-5);
  EXPECT_NEAR(law_distance("uniform_b", {.b = .5}), .1500, 5e-5);
  EXPECT_NEAR(law_distance("distillspec_lin", {.epsilon = .5}), .1636, 5e-5);
  EXPECT_NEAR(law_distance("distillspec_sq", {.epsilon = std::sqrt(.5)}), .1636, 5e-5);
  EXPECT_NEAR(law_distance("rejection", {}), 0, 1e-12);
}

TEST(Enumerator, CountsEveryBranchOnceAndReportsWhatItCut) {
  const auto program = [](const Coins& coins) {
    Outcome out;
    for (int i = 0; i < 3; ++i)
      out.push_back(static_cast<Token>(coins.categorical(std::vector<double>{1, 0, 3}, {})));
    return out;
  };
  const Law law = law_of(program);
  EXPECT_EQ(law.runs, 8);
  EXPECT_NEAR(law.mass.at({0, 2, 2}), 9.0 / 64, 1e-15);
  const Law cut = law_of(program, .03);
  EXPECT_NEAR(cut.pruned, 1.0 / 64, 1e-15);
  EXPECT_NEAR(total_variation(law.mass, cut.mass), 1.0 / 128, 1e-15);
}

}  // namespace
}  // namespace speclab::enumerate::enumeration_test
