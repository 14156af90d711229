// Rules that judge whole paths: their golden values, and what they accept compared with "rejection".
// enumeration_test.cpp proves that they are lossless.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/backend/path_choice.h"
#include "core/base/error.h"
#include "core/theory/audit/toy_step.h"
#include "core/theory/audit/verifier_audit.h"
#include "core/theory/audit/enumerate.h"
#include "core/theory/verifier_bounds.h"

namespace speclab::enumerate::path_rules_test {
namespace {

/// E[tau] of a step on the golden pair.
double tokens_of_step(const char* rule, const Shape& shape, Draws draws) {
  const World world = golden_world(static_cast<int>(shape.widths.size()) + 1);
  Step step;
  double tokens = 0;
  walk(
      [&](const Coins& coins) { run_step(world, shape, draws, find_acceptance_rule(rule), {}, coins, step); },
      [&](double probability) {
        tokens += probability * static_cast<double>(step.acceptance.path.size() + 1);
      });
  return tokens;
}

// E[tau] of the rule "rejection" and of rules over whole paths, enumerated in exact rationals elsewhere.
TEST(Golden, TokensOfAStepForEveryVerifier) {
  const double by_token[] = {1.75, 2.3125, 2.734375, 3.05078125, 3.288086, 3.4661};
  const double by_block[] = {1.75, 2.3675, 2.883625, 3.32580625, 3.708890, 4.0441};
  for (int gamma = 1; gamma <= 6; ++gamma) {
    const Shape chain{std::vector<int>(static_cast<std::size_t>(gamma), 1)};
    const auto at = static_cast<std::size_t>(gamma - 1);
    const double rounding = gamma < 6 ? 1e-6 : 5e-5;  // of the numbers above
    EXPECT_NEAR(tokens_of_step("rejection", chain, Draws::iid), by_token[at], rounding) << gamma;
    EXPECT_NEAR(tokens_of_step("block", chain, Draws::iid), by_block[at], rounding) << gamma;
    if (gamma < 6) {
      EXPECT_NEAR(tokens_of_step("traversal", chain, Draws::iid), by_block[at], rounding) << gamma;
    }
  }
  struct Tree {
    Shape shape;
    double iid, iid_traversal, swor, swor_traversal;
  };
  for (const Tree& tree : {Tree{{{2}}, 1.8625, 1.8625, 1.902067, 1.902067},
                           Tree{{{2, 1}}, 2.509375, 2.564375, 2.578618, 2.634310},
                           Tree{{{2, 2}}, 2.606406, 2.633656, 2.715793, 2.734356},
                           Tree{{{3, 1}}, 2.608906, 2.666156, 2.624150, 2.683592}}) {
    SCOPED_TRACE(fmt::format("widths {}", fmt::join(tree.shape.widths, " ")));
    EXPECT_NEAR(tokens_of_step("rejection", tree.shape, Draws::iid), tree.iid, 1e-6);
    EXPECT_NEAR(tokens_of_step("traversal", tree.shape, Draws::iid), tree.iid_traversal, 1e-6);
    EXPECT_NEAR(tokens_of_step("rejection", tree.shape, Draws::swor), tree.swor, 1e-6);
    EXPECT_NEAR(tokens_of_step("traversal", tree.shape, Draws::swor), tree.swor_traversal, 1e-6);
  }
}

// The target Bernoulli(1/3) and the draft Bernoulli(2/3) of Sun et al. 2024: 10/9 and 11/9 accepted tokens. A
// verifier that sees both laws of whole texts could accept 12/9: the overlap of the laws of the first token,
// and that of the laws of both.
TEST(Golden, TheToyOfBlockVerification) {
  World world;
  world.vocab = 2;
  for (const Outcome& context : std::vector<Outcome>{{}, {0}, {1}, {0, 0}, {0, 1}, {1, 0}, {1, 1}}) {
    World::Row& row = world.rows[context];
    row.p.assign_weights(std::vector<double>{1, 2});
    row.raw = row.p;
    for (Distribution& q : row.q) q.assign_weights(std::vector<double>{2, 1});
  }
  for (const auto& [rule, accepted] : {std::pair{"rejection", 10 / 9.0}, std::pair{"block", 11 / 9.0}}) {
    Step step;
    double found = 0;
    walk(
        [&](const Coins& coins) {
          run_step(world, {{1, 1}}, Draws::iid, find_acceptance_rule(rule), {}, coins, step);
        },
        [&](double probability) { found += probability * static_cast<double>(step.acceptance.path.size()); });
    EXPECT_NEAR(found, accepted, 1e-7) << rule;
  }
  const auto texts = [&](auto&& row_of) {  // the law of both tokens
    std::vector<double> law;
    for (Token a = 0; a < 2; ++a) {
      for (Token b = 0; b < 2; ++b)
        law.push_back(row_of(world.at({})).prob(a) * row_of(world.at({a})).prob(b));
    }
    return law;
  };
  const std::vector<double> p = texts([](const World::Row& row) -> const Distribution& { return row.p; });
  const std::vector<double> q = texts([](const World::Row& row) -> const Distribution& { return row.q[0]; });
  const std::vector<double> first_p = {p[0] + p[1], p[2] + p[3]}, first_q = {q[0] + q[1], q[2] + q[3]};
  EXPECT_NEAR(theory::row_overlap(first_p, first_q) + theory::row_overlap(p, q), 12 / 9.0, 1e-7);
}

// A copied token has no law of its own to share, so nothing is gained: P(length >= i) is the product of p.
TEST(Block, OfOneHotDraftsAcceptsWhatTheTokenRuleAccepts) {
  std::mt19937 random(43);
  for (const Rows rows : kAllRows) {
    const World world = random_world(3, 4, rows, false, random);
    std::vector<double> lengths[2];
    for (const int i : {0, 1}) {
      lengths[i].resize(4);
      Step step;
      walk(
          [&](const Coins& coins) {
            run_step(world, {{1, 1, 1}}, Draws::one_hot, find_acceptance_rule(i == 0 ? "rejection" : "block"),
                     {}, coins, step);
          },
          [&](double probability) { lengths[i][step.acceptance.path.size()] += probability; });
    }
    for (std::size_t length = 0; length < 4; ++length)
      EXPECT_NEAR(lengths[0][length], lengths[1][length], 1e-12) << length;
  }
}

// 40 tables of chains of three tokens. Rows have zeros and depend on the whole history.
TEST(Block, IsExactAndNeverBelowTheTokenRule) {
  std::mt19937 random(45);
  const Shape chain{{1, 1, 1}};
  for (int table = 0; table < 40; ++table) {
    const World world = random_world(3, 4, Rows::zeros, false, random);
    const audit::StepLaw block =
        audit::enumerate_steps(world, chain, Draws::iid, find_acceptance_rule("block"), {}, 1e-9);
    const audit::StepLaw token =
        audit::enumerate_steps(world, chain, Draws::iid, find_acceptance_rule("rejection"), {}, 1e-9);
    EXPECT_LE(block.joint_error, 1e-12) << table;
    EXPECT_LE(token.joint_error, 1e-12) << table;
    EXPECT_GE(block.tau, token.tau - 1e-12) << table;
    EXPECT_NEAR(block.tau, audit::best_tokens_of_chain(world, 3), 1e-12) << table;
  }
}

// Values for the golden pair by number and length of paths, enumerated outside of this project.
TEST(MultiPathBlock, AcceptsMoreWithMorePaths) {
  const double by_paths[3][2] = {{1.75, 2.3675}, {1.944531, 2.731252}, {1.948337, 2.760201}};
  for (int paths = 1; paths <= 3; ++paths) {
    for (int gamma = 1; gamma <= 2; ++gamma) {
      Shape shape{{paths}};
      if (gamma == 2) shape.widths.push_back(1);
      EXPECT_NEAR(tokens_of_step("multi_path_block", shape, Draws::iid), by_paths[paths - 1][gamma - 1], 2e-6)
          << paths << " paths of " << gamma;
    }
  }
  EXPECT_GT(tokens_of_step("multi_path_block", {{2, 1}}, Draws::iid),
            tokens_of_step("traversal", {{2, 1}}, Draws::iid) + .1);
}

TEST(MultiPathBlock, IsBlockVerificationOnAChain) {
  std::mt19937 random(47);
  for (const Rows rows : kAllRows) {
    const World world = random_world(4, 4, rows, false, random);
    for (const Draws draws : {Draws::iid, Draws::one_hot, Draws::two_models}) {
      for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Step block, multi;
        run_step(world, {{1, 1, 1}}, draws, find_acceptance_rule("block"), {}, Coins(seed, 2), block);
        run_step(world, {{1, 1, 1}}, draws, find_acceptance_rule("multi_path_block"), {}, Coins(seed, 2),
                 multi);
        ASSERT_EQ(multi.emitted, block.emitted) << seed;
        ASSERT_EQ(multi.acceptance.path, block.acceptance.path) << seed;
        ASSERT_EQ(multi.acceptance.tested.size(), block.acceptance.tested.size()) << seed;
      }
    }
  }
}

/// The golden world with other rows, the same after every text.
World golden_world_with(const std::vector<double>& p, const std::vector<double>& q, int length) {
  World world = golden_world(length);
  for (auto& [context, row] : world.rows) {
    row.p.assign_weights(p);
    row.raw = row.p;
    for (Distribution& of_q : row.q) of_q.assign_weights(q);
  }
  return world;
}

/// The largest share of one-token drafts that is accepted if the choice among k of them orders all tokens by
/// p/q: the maximum over lambda of the sum of min(q', p). The sum is linear in lambda between the points at
/// which some q'(x) is p(x).
double accepted_without_classes(const std::vector<double>& p, const std::vector<double>& q, int k) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t x) { return p[x] / q[x]; });
  std::vector<double> best(p.size()), lambdas{0, 1};
  double below = 0;
  for (const std::size_t x : order) {
    best[x] = std::pow(below + q[x], k) - std::pow(below, k);
    below += q[x];
    const double lambda = (p[x] - q[x]) / (best[x] - q[x]);
    if (lambda > 0 && lambda < 1) lambdas.push_back(lambda);
  }
  double most = 0;
  for (const double lambda : lambdas) {
    double sum = 0;
    for (std::size_t x = 0; x < p.size(); ++x) sum += std::min(q[x] + lambda * (best[x] - q[x]), p[x]);
    most = std::max(most, sum);
  }
  return most;
}

// Tokens 0 and 1 are in one class of p/q although they differ, token 2 is in a lower one, and token 3 is in
// the highest one, far above the others. The law is the target's for every choice within a class. The
// classes cost less than 1 % of what is accepted. Here they even gain, because an order of tokens 0 and 1
// would give one of them too much mass.
TEST(MultiPathBlock, ATieWithinAClassIsTheFirstPaths) {
  const std::vector<double> p{.3003, .4, .1, .1997}, q{.25, .334, .4159, 1e-4};
  ASSERT_EQ(ratio_class(p[0], q[0]), ratio_class(p[1], q[1]));
  ASSERT_NE(p[0] / q[0], p[1] / q[1]);
  ASSERT_EQ(ratio_class(p[3], q[3]), kRatioClasses - 1);
  const World world = golden_world_with(p, q, 3);
  const AcceptanceRule& rule = find_acceptance_rule("multi_path_block");
  for (const Shape& shape : {Shape{{2}}, Shape{{3}}, Shape{{2, 1}}}) {
    const int length = static_cast<int>(shape.widths.size()) + 1;
    double worst = 0;
    const Law law =
        law_of([&](const Coins& coins) { return emit(world, shape, Draws::iid, rule, {}, length, coins); });
    for (const auto& [outcome, mass] : target_law(world, length))
      worst = std::max(worst, std::abs(mass - law.mass.at(outcome)));
    EXPECT_LE(worst, 1e-12);
  }
  for (const int paths : {2, 3}) {
    Step step;
    double accepted = 0;
    walk([&](const Coins& coins) { run_step(world, {{paths}}, Draws::iid, rule, {}, coins, step); },
         [&](double probability) { accepted += step.acceptance.path.empty() ? 0 : probability; });
    const double best = accepted_without_classes(p, q, paths);
    EXPECT_GE(accepted, .99 * best) << paths;
    EXPECT_LE(accepted, theory::best_acceptance(p, q, paths, theory::DraftedSet::iid) + 1e-6) << paths;
  }
  // Two paths: within a class the first path decides, whatever token it has.
  int decided = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Step step;
    run_step(world, {{2}}, Draws::iid, rule, {}, Coins(seed, 4), step);
    const Token a = step.draft.tree.token(1), b = step.draft.tree.token(2);
    if (a + b != 1 || a == b) continue;
    ASSERT_EQ(step.acceptance.tested.at(0).node, 1) << seed;
    ++decided;
  }
  EXPECT_GT(decided, 30);
}

// Paths with equal tokens may be taken for each other, but not mixed: the accepted nodes are one path of the
// tree.
TEST(MultiPathBlock, AcceptsNodesOfOnePath) {
  const World world = golden_world(4);
  int longer = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Step step;
    run_step(world, {{3, 1, 1}}, Draws::iid, find_acceptance_rule("multi_path_block"), {}, Coins(seed, 3),
             step);
    int parent = 0;
    for (const int node : step.acceptance.path) {
      ASSERT_EQ(step.draft.tree.parent(node), parent) << seed;
      parent = node;
    }
    longer += step.acceptance.path.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(longer, 100);
}

// The choice of the path has coins of its own, apart from those of drafting, acceptance and correction.
TEST(MultiPathBlock, UsesEachCoinOnce) {
  const World world = golden_world(4);
  std::size_t most = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::set<std::tuple<std::int64_t, Purpose, std::uint32_t>> used;
    Coins::Watch watch = [&](const Coins::Address& coin, double number) {
      EXPECT_TRUE(used.insert({coin.position, coin.purpose, coin.draw}).second)
          << seed << ", purpose " << static_cast<int>(coin.purpose) << ", draw " << coin.draw;
      return number;
    };
    Step step;
    run_step(world, {{3, 1, 1}}, Draws::iid, find_acceptance_rule("multi_path_block"), {},
             Coins::watched(seed, 3, &watch), step);
    most = std::max(most, used.size());
  }
  EXPECT_GE(most, 14u) << "nine draws, choices, tests, and the correction";
}

TEST(MultiPathBlock, RefusesWhatIsNotIndependentPaths) {
  const World world = golden_world(3);
  const auto refused = [&](const Shape& shape, Draws draws, const char* text) {
    for (std::uint64_t seed = 0;; ++seed) {
      ASSERT_LT(seed, 50u) << text;
      Step step;
      try {
        run_step(world, shape, draws, find_acceptance_rule("multi_path_block"), {}, Coins(seed, 1), step);
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("Use the rule traversal"), std::string::npos);
        return;
      }
    }
  };
  refused({{2}}, Draws::swor, "different rows");
  refused({{2}}, Draws::one_hot, "a copied token");
  refused({{1, 2}}, Draws::iid, "2 children of node 1");
  // Paths with equal tokens and different lengths.
  Draft draft;
  draft.reset(0);
  int law = -1;
  draft.new_q(&law).assign_weights(std::vector<double>{1, 1});
  for (const int parent : {0, 0, 1}) draft.add(1, parent, law);
  const AcceptanceRule& rule = find_acceptance_rule("multi_path_block");
  EXPECT_THROW(rule.require(draft), Error);
  draft.add(0, 2, law);
  EXPECT_NO_THROW(rule.require(draft));
  draft.reset(0);
  draft.new_q(&law).assign_weights(std::vector<double>{1, 1});
  draft.add(1, 0, law);
  draft.add(0, 0, law);
  draft.add(1, 1, law);
  EXPECT_NO_THROW(rule.require(draft)) << "paths that part may have different lengths";
}

TEST(Block, RefusesATree) {
  const World world = golden_world(2);
  Step step;
  try {
    run_step(world, {{2}}, Draws::iid, find_acceptance_rule("block"), {}, Coins(1, 1), step);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("expected a chain. Use the rule traversal"), std::string::npos);
  }
}

}  // namespace
}  // namespace speclab::enumerate::path_rules_test
