// Verification by the kernel on a simulated GPU makes bitwise the same decisions as accept(), and passes the
// enumeration proof.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <vector>

#include "tests/decoding/rules/device_cases.h"
#include "core/theory/audit/toy_step.h"

namespace speclab::device_acceptance_test {
namespace {

using namespace device_step;

TEST(DeviceAcceptance, ChainsAndTreesAreDecidedAsOnTheHost) {
  std::mt19937 random(5);
  simt::Machine machine(6);
  Judged judged;
  for (int kind = 0; kind < static_cast<int>(Kind::last); ++kind) {
    for (const int vocab : {1, 2, 3, 7, 63, 64, 65, 1023, 2050}) {
      for (int repeat = 0; repeat < (vocab > 100 ? 1 : 3); ++repeat) {
        SCOPED_TRACE(fmt::format("rows {}, vocabulary {}, repeat {}", kind, vocab, repeat));
        const std::uint64_t seed = random();
        const int nodes = 1 + static_cast<int>(random() % (vocab > 100 ? 5 : 24));
        const Step step =
            random_step(static_cast<Kind>(kind), vocab, nodes, random() % 2 == 0, Coins(seed + 1, 3), random,
                        repeat == 1 ? Siblings::alike : Siblings::any);
        ASSERT_NO_FATAL_FAILURE(
            compare(machine, step, seed, static_cast<std::int64_t>(random()) << 8, &judged));
      }
    }
  }
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.chains_only || rule.independent_paths_only || rule.name == "lenience" ||
        rule.device_form == nullptr)
      continue;
    EXPECT_GE(judged[rule.name], 10) << rule.name;
  }
}

// Several paths from the pending token, for the rule that chooses one of them.
TEST(DeviceAcceptance, IndependentPaths) {
  std::mt19937 random(25);
  simt::Machine machine(26);
  const AcceptanceRule& rule = find_acceptance_rule("multi_path_block");
  int first = 0, later = 0, deep = 0, rejected = 0;
  for (int kind = 0; kind < static_cast<int>(Kind::last); ++kind) {
    for (const int vocab : {2, 3, 7, 65, 2050}) {
      for (int repeat = 0; repeat < (vocab > 100 ? 1 : 3); ++repeat) {
        SCOPED_TRACE(fmt::format("rows {}, vocabulary {}, repeat {}", kind, vocab, repeat));
        const std::uint64_t seed = random();
        const int paths = repeat == 0 ? 2 : 1 + static_cast<int>(random() % 5);
        const Step step = random_paths(static_cast<Kind>(kind), vocab, paths, 3, Coins(seed + 1, 3), random);
        ASSERT_FALSE(refuses(rule, step.draft));
        ASSERT_NO_FATAL_FAILURE(compare(machine, step, seed, static_cast<std::int64_t>(random()) << 8));
        Acceptance host;
        const TargetRows rows = [&](int node) {
          return TargetRow{&step.p[static_cast<std::size_t>(node)], nullptr};
        };
        accept(rule, {}, step.draft, rows, Coins(seed, 3), 40, host);
        if (paths > 1 && !host.tested.empty()) ++(host.tested[0].node == 1 ? first : later);
        deep += host.path.size() > 1 ? 1 : 0;
        rejected += host.bonus ? 0 : 1;
      }
    }
  }
  EXPECT_GE(first, 10);
  EXPECT_GE(later, 5);
  EXPECT_GE(deep, 10);
  EXPECT_GE(rejected, 10);
}

// The most paths, the longest path, and the most choices that a tree has room for.
TEST(DeviceAcceptance, TheMostPathsAndTheLongest) {
  simt::Machine machine(28);
  const AcceptanceRule& rule = find_acceptance_rule("multi_path_block");
  constexpr int kMost = cuda::kMostNodes - 1;
  const struct {
    int paths, length;
    bool equal;  ///< all tokens of all paths are 0, so that the paths never part
  } cases[] = {{kMost, 1, false}, {1, kMost, false}, {2, kMost / 2, true}};
  for (const auto& c : cases) {
    SCOPED_TRACE(fmt::format("{} paths of {}", c.paths, c.length));
    Step step;
    step.draft.reset(0);
    int law = -1;
    step.draft.new_q(&law).assign_weights(std::vector<double>{.9, .05, .05});
    for (int path = 0; path < c.paths; ++path) {
      for (int depth = 0; depth < c.length; ++depth) {
        const int node = step.draft.tree.size();
        const Token token =
            step.draft.q[0].sample(Coins(3, 3), {0, Purpose::draft, static_cast<std::uint32_t>(node)});
        step.draft.add(c.equal ? 0 : token, depth == 0 ? 0 : node - 1, law);
      }
    }
    step.p.resize(static_cast<std::size_t>(step.draft.tree.size()));
    for (Distribution& p : step.p) p.assign_weights(std::vector<double>{.92, .03, .05});
    const TargetRows rows = [&](int node) {
      return TargetRow{&step.p[static_cast<std::size_t>(node)], nullptr};
    };
    std::size_t longest = 0;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Acceptance host, device;
      accept(rule, {}, step.draft, rows, Coins(seed, 3), 40, host);
      ASSERT_NO_THROW(accept_on(machine, rule, {}, step.draft, rows, Coins(seed, 3), 40, device));
      EXPECT_EQ(device.path, host.path) << seed;
      EXPECT_EQ(device.next, host.next) << seed;
      longest = std::max(longest, host.path.size());
    }
    EXPECT_GE(static_cast<int>(longest), (c.length + 1) / 2);
  }
}

// Nodes with many children, also below later children, so that several laws R are stored at once.
TEST(DeviceAcceptance, WideTrees) {
  std::mt19937 random(15);
  simt::Machine machine(16);
  for (const Kind kind : {Kind::generic, Kind::zeros, Kind::near, Kind::by_construction}) {
    for (const int wide : {3, 4, 9}) {
      SCOPED_TRACE(fmt::format("rows {}, {} children", static_cast<int>(kind), wide));
      const std::uint64_t seed = random();
      Step step = random_step(kind, 40, 1 + 3 * wide, false, Coins(seed + 1, 3), random, Siblings::alike);
      // The same tokens and rows in a tree in which only the last child of a node has children.
      Draft draft;
      draft.reset(step.draft.tree.token(0));
      for (int node = 1; node < 1 + 3 * wide; ++node) {
        int index = Draft::kOneHot;
        Token token = step.draft.tree.token(node);
        if (const Distribution* q = step.draft.q_at(node)) draft.new_q(&index) = *q;
        draft.add(token, (node - 1) / wide * wide, index);
      }
      step.draft = draft;
      ASSERT_NO_FATAL_FAILURE(compare(machine, step, seed, 70));
    }
  }
}

TEST(DeviceAcceptance, TheTargetsVocabulary) {
  std::mt19937 random(7);
  simt::Machine machine(8);
  const Step step = random_step(Kind::generic, 49152, 4, false, Coins(1, 3), random);
  compare(machine, step, 2, 40);
}

// A vocabulary of three pieces, the last one not whole: the kernel has three blocks. compare() runs it with
// one block and with several. Chains end with a rejection or a bonus token; nodes of trees have siblings,
// which are tested after the meeting.
TEST(DeviceAcceptance, ARejectionIsSharedByTheBlocksOfARow) {
  constexpr int kVocab = 2 * cuda::kRowPiece + 70;
  std::mt19937 random(9);
  simt::Machine machine(10);
  int rejections = 0;
  for (const Kind kind : {Kind::generic, Kind::zeros, Kind::equal, Kind::disjoint, Kind::by_construction}) {
    for (const bool chain : {true, false}) {
      SCOPED_TRACE(fmt::format("rows {}, {}", static_cast<int>(kind), chain ? "chain" : "tree"));
      const std::uint64_t seed = random();
      const Step step = random_step(kind, kVocab, 7, chain, Coins(seed + 1, 3), random, Siblings::alike);
      const TargetRows rows = [&](int node) {
        return TargetRow{&step.p[static_cast<std::size_t>(node)], nullptr};
      };
      for (const char* name : {"rejection", "non_iterative", "distillspec_exp", "rejection_any_order",
                               "block", "traversal", "top_beta_longest", "typical_longest", "k_seq"}) {
        if (refuses(find_acceptance_rule(name), step.draft)) continue;
        Acceptance host, device;
        accept(find_acceptance_rule(name), {}, step.draft, rows, Coins(seed, 3), 40, host);
        ASSERT_NO_THROW(
            accept_on(machine, find_acceptance_rule(name), {}, step.draft, rows, Coins(seed, 3), 40, device));
        EXPECT_EQ(device.path, host.path) << name;
        EXPECT_EQ(device.next, host.next) << name;
        EXPECT_EQ(device.bonus, host.bonus) << name;
        rejections += host.bonus ? 0 : 1;
      }
    }
  }
  EXPECT_GE(rejections, 10);
  // Independent paths over the same vocabulary.
  for (const Kind kind : {Kind::generic, Kind::zeros, Kind::near}) {
    const Step step = random_paths(kind, kVocab, 3, 2, Coins(5, 3), random);
    const TargetRows rows = [&](int node) {
      return TargetRow{&step.p[static_cast<std::size_t>(node)], nullptr};
    };
    const AcceptanceRule& rule = find_acceptance_rule("multi_path_block");
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Acceptance host, device;
      accept(rule, {}, step.draft, rows, Coins(seed, 3), 40, host);
      ASSERT_NO_THROW(accept_on(machine, rule, {}, step.draft, rows, Coins(seed, 3), 40, device));
      EXPECT_EQ(device.path, host.path) << seed;
      EXPECT_EQ(device.next, host.next) << seed;
    }
  }
}

// Only the first levels are summed ahead; the block that walks sums the others.
TEST(DeviceAcceptance, AChainLongerThanTheLevelsAhead) {
  constexpr int kVocab = cuda::kRowPiece + 70, kNodes = 13;
  static_assert(cuda::levels_ahead(kNodes) < kNodes - 2);
  simt::Machine machine(23);
  std::vector<double> p(kVocab), q(kVocab);
  for (int x = 0; x < kVocab; ++x) {
    p[static_cast<std::size_t>(x)] = 4 + x % 3;
    q[static_cast<std::size_t>(x)] = 4 + x % 5;
  }
  Step step;
  step.p.resize(kNodes);
  for (Distribution& row : step.p) row.assign_weights(p);
  const TargetRows rows = [&](int node) {
    return TargetRow{&step.p[static_cast<std::size_t>(node)], nullptr};
  };
  int deep = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    step.draft.reset(0);
    for (int node = 1; node < kNodes; ++node) {
      int index = -1;
      step.draft.new_q(&index).assign_weights(q);
      const Token token = step.draft.q[static_cast<std::size_t>(index)].sample(
          Coins(seed, 2), {0, Purpose::draft, static_cast<std::uint32_t>(node)});
      step.draft.add(token, node - 1, index);
    }
    Acceptance host, device;
    accept(find_acceptance_rule("block"), {}, step.draft, rows, Coins(seed, 3), 40, host);
    ASSERT_NO_THROW(
        accept_on(machine, find_acceptance_rule("block"), {}, step.draft, rows, Coins(seed, 3), 40, device));
    EXPECT_EQ(device.path, host.path) << seed;
    EXPECT_EQ(device.next, host.next) << seed;
    deep += !host.bonus && static_cast<int>(host.path.size()) >= cuda::levels_ahead(kNodes) ? 1 : 0;
  }
  EXPECT_GE(deep, 3);
}

TEST(DeviceAcceptance, RulesWithSeveralBlocks) {
  simt::u64 best = 0;
  simt::u32 arrivals = 0;
  const float row = 0;
  const auto blocks = [](const cuda::Accept& a) {
    int found = 0;
    cuda::start_accept(a, [&](const char*, const auto& arguments) {
      with_kernel(arguments, [&](const auto&, const cuda::LaunchShape& shape) { found = shape.grid_x; });
    });
    return found;
  };
  cuda::Accept a{.vocab = 128256, .p = &row, .q = &row, .meeting = {&best, &arrivals}};
  EXPECT_EQ(blocks(a), 32);
  a.rule = AcceptRule::kCoupled;
  EXPECT_EQ(blocks(a), 1);
  a.rule = AcceptRule::kRatio;
  a.q = nullptr;
  EXPECT_EQ(blocks(a), 1);
  a.q = &row;
  a.meeting = {};
  EXPECT_EQ(blocks(a), 1);
  a.nodes = 5;
  for (const auto& [rule, most] : {std::pair{AcceptRule::kPaths, 32 * 4}, {AcceptRule::kLongest, 5}}) {
    a.rule = rule;
    a.meeting = {&best, &arrivals};
    EXPECT_EQ(blocks(a), most);
    a.meeting = {};
    EXPECT_EQ(blocks(a), 1);
  }
  a.rule = AcceptRule::kPaths;
  a.meeting = {&best, &arrivals};
  a.nodes = 128;
  EXPECT_EQ(blocks(a), 32 * 8);
  a.p = nullptr;  // all rows are one-hot
  EXPECT_EQ(blocks(a), 1);
  a.p = &row;
  a.rule = AcceptRule::kMultiPath;
  EXPECT_EQ(blocks(a), 1);
}

/// The rules without a device_form, each with the reason why it has none yet. The host judges their drafts.
const std::map<std::string_view, std::string_view> kOnTheHostAlone = {};

TEST(DeviceAcceptance, EveryRuleRunsOnTheDevice) {
  for (const AcceptanceRule& rule : acceptance_rules()) {
    EXPECT_NE(rule.device_form != nullptr, kOnTheHostAlone.contains(rule.name))
        << rule.name << ": a rule has a device_form, or it stands in kOnTheHostAlone with the reason";
  }
  for (const auto& [name, reason] : kOnTheHostAlone) {
    EXPECT_NO_THROW(find_acceptance_rule(name)) << name;
    EXPECT_FALSE(reason.empty()) << name;
  }
}

// Ties in rank and at the bar, a best token of p that is not the best raw token, and a bar that no token
// passes.
TEST(DeviceAcceptance, CriteriaAtTheirEdges) {
  simt::Machine machine(3);
  const auto decide = [&](const char* name, const RuleOptions& options, Token token,
                          const std::vector<double>& weights, bool greedy) {
    Step step;
    step.draft.reset(0);
    step.draft.add(token, 0);
    step.p.resize(2);
    step.raw.resize(2);
    for (Distribution& raw : step.raw) raw.assign_weights(weights);
    for (Distribution& p : step.p) {
      if (greedy) p.assign_one_hot(1, static_cast<int>(weights.size()));
      else p.assign_weights(weights);
    }
    const TargetRows rows = [&](int node) {
      return TargetRow{&step.p[static_cast<std::size_t>(node)], &step.raw[static_cast<std::size_t>(node)]};
    };
    Acceptance host, device;
    accept(find_acceptance_rule(name), options, step.draft, rows, Coins(1, 1), 0, host);
    accept_on(machine, find_acceptance_rule(name), options, step.draft, rows, Coins(1, 1), 0, device, nullptr,
              greedy);
    EXPECT_EQ(device.path, host.path) << name;
    EXPECT_EQ(device.next, host.next) << name;
    return !device.path.empty();
  };
  const std::vector<double> tied{.125, .25, .25, .125, .25};
  for (const bool greedy : {false, true}) {
    for (const Token token : {0, 1, 2, 3, 4}) {
      EXPECT_EQ(decide("top_beta", {.beta = 2}, token, tied, greedy), token == 1 || token == 2) << token;
      EXPECT_EQ(decide("gap", {.gap = 0}, token, tied, greedy), token == 1) << token;
      EXPECT_EQ(decide("gap", {.gap = std::log(2.0) - 1e-9}, token, tied, greedy), token != 0 && token != 3)
          << token;
      EXPECT_EQ(decide("gap", {.gap = std::log(2.0) + 1e-9}, token, tied, greedy), true) << token;
      EXPECT_EQ(decide("specdec", {.beta = 4, .gap = std::log(2.0) - 1e-9}, token, tied, greedy),
                token != 0 && token != 3)
          << token;
      EXPECT_EQ(decide("specdec", {.beta = 2, .gap = 1}, token, tied, greedy), token == 1 || token == 2)
          << token;
      EXPECT_EQ(decide("threshold", {.theta = .125, .top_k = 4}, token, tied, greedy), token != 3) << token;
      EXPECT_EQ(decide("threshold", {.theta = .2501}, token, tied, greedy), false) << token;
      EXPECT_EQ(decide("typical", {.epsilon = .125, .delta = 1}, token, tied, greedy),
                token != 0 && token != 3)
          << token;
      EXPECT_EQ(decide("typical", {.epsilon = 1, .delta = 0}, token, tied, greedy), true) << token;
      EXPECT_EQ(decide("distance", {.distance = 0}, token, tied, greedy), token == 1) << token;
      EXPECT_EQ(decide("distance", {.distance = 1}, token, tied, greedy), token <= 2) << token;
      EXPECT_EQ(decide("distance", {.distance = std::numeric_limits<int>::max()}, token, tied, greedy), true)
          << token;
      EXPECT_EQ(decide("distance", {.distance = 4}, token, {0, .5, 0, .25, .25}, greedy),
                token != 0 && token != 2)
          << token;  // a token of probability 0 is not accepted
      EXPECT_EQ(decide("minimum_block", {.beta = 2, .min_block = 1}, token, tied, greedy),
                token == 1 || token == 2)
          << token;
      EXPECT_EQ(decide("minimum_block", {.min_block = 2}, token, {0, .5, 0, .25, .25}, greedy),
                token != 0 && token != 2)
          << token;
    }
  }
  for (const Token token : {0, 1, 2})
    EXPECT_EQ(decide("lenience", {.lenience = .5}, token, tied, true), true) << token;
  for (const Token token : {0, 1, 2})
    EXPECT_EQ(decide("lenience", {.lenience = 1}, token, tied, true), token == 1) << token;
}

// The first min_block - 1 levels of a draft are kept untested; from then on top-beta decides.
TEST(DeviceAcceptance, MinimumBlockCountsTheLevels) {
  simt::Machine machine(24);
  const AcceptanceRule& rule = find_acceptance_rule("minimum_block");
  for (const bool tree : {false, true}) {
    for (const bool greedy : {false, true}) {
      Step step;
      step.draft.reset(0);
      int above = 0;
      for (int depth = 0; depth < 5; ++depth) {
        if (tree) step.draft.add(3, above);  // has probability 0
        above = step.draft.add(2, above);    // only the third best
      }
      step.p.resize(static_cast<std::size_t>(step.draft.tree.size()));
      step.raw.resize(step.p.size());
      for (Distribution& raw : step.raw) raw.assign_weights(std::vector<double>{.5, .3, .2, 0});
      for (Distribution& p : step.p) {
        if (greedy) p.assign_one_hot(0, 4);
        else p.assign_weights(std::vector<double>{.5, .3, .2, 0});
      }
      const TargetRows rows = [&](int node) {
        return TargetRow{&step.p[static_cast<std::size_t>(node)], &step.raw[static_cast<std::size_t>(node)]};
      };
      for (const int min_block : {1, 2, 4, 6, std::numeric_limits<int>::max()}) {
        SCOPED_TRACE(fmt::format("{}, {}, min_block {}", tree, greedy, min_block));
        const RuleOptions options{.beta = 2, .min_block = min_block};
        Acceptance host, device;
        accept(rule, options, step.draft, rows, Coins(7, 1), 0, host);
        accept_on(machine, rule, options, step.draft, rows, Coins(7, 1), 0, device, nullptr, greedy);
        EXPECT_EQ(static_cast<int>(device.path.size()), std::min(min_block - 1, 5));
        EXPECT_EQ(device.path, host.path);
        EXPECT_EQ(device.next, host.next);
        EXPECT_EQ(device.bonus, host.bonus);
        EXPECT_EQ(device.tested.size(), host.tested.size());
      }
    }
  }
}

// Two accepted paths of one length at temperature 0: the raw row decides, not p, which is one-hot.
TEST(DeviceAcceptance, TheRawRowOrdersLongestPaths) {
  simt::Machine machine(21);
  Step step;
  step.draft.reset(0);
  step.draft.add(1, 0);
  step.draft.add(2, 0);
  step.p.resize(3);
  step.raw.resize(3);
  for (Distribution& p : step.p) p.assign_one_hot(1, 3);
  for (Distribution& raw : step.raw) raw.assign_weights(std::vector<double>{.125, .375, .5});
  const TargetRows rows = [&](int node) {
    return TargetRow{&step.p[static_cast<std::size_t>(node)], &step.raw[static_cast<std::size_t>(node)]};
  };
  Acceptance host, device;
  const AcceptanceRule& rule = find_acceptance_rule("top_beta_longest");
  accept(rule, {.beta = 2}, step.draft, rows, Coins(1, 1), 0, host);
  accept_on(machine, rule, {.beta = 2}, step.draft, rows, Coins(1, 1), 0, device, nullptr, true);
  EXPECT_EQ(host.path, std::vector<int>{2});
  EXPECT_EQ(device.path, host.path);
}

// Rows with equal sums but different weights are different rows.
TEST(DeviceAcceptance, KSeqComparesWholeRows) {
  simt::Machine machine(22);
  Step step;
  step.p.resize(3);
  for (Distribution& p : step.p) p.assign_weights(std::vector<double>{.25, .25, .5});
  const TargetRows rows = [&](int node) {
    return TargetRow{&step.p[static_cast<std::size_t>(node)], nullptr};
  };
  int later = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    step.draft.reset(0);
    for (const std::vector<double>& weights : {std::vector<double>{.75, .125, .125}, {.125, .75, .125}}) {
      int index = -1;
      step.draft.new_q(&index).assign_weights(weights);
      const auto node = static_cast<std::uint32_t>(step.draft.tree.size());
      const Token token =
          step.draft.q[static_cast<std::size_t>(index)].sample(Coins(seed, 2), {0, Purpose::draft, node});
      step.draft.add(token, 0, index);
    }
    Acceptance host, device;
    accept(find_acceptance_rule("k_seq"), {}, step.draft, rows, Coins(seed, 3), 0, host);
    accept_on(machine, find_acceptance_rule("k_seq"), {}, step.draft, rows, Coins(seed, 3), 0, device);
    EXPECT_EQ(device.path, host.path) << seed;
    EXPECT_EQ(device.next, host.next) << seed;
    later += host.path == std::vector<int>{1} ? 0 : 1;
  }
  EXPECT_GE(later, 50);
}

TEST(DeviceAcceptance, ADraftWhoseTokenHasNoMassIsReported) {
  simt::Machine machine(1);
  Step step;
  step.draft.reset(0);
  int index = -1;
  step.draft.new_q(&index).assign_weights(std::vector<double>{0, 1});
  step.draft.add(0, 0, index);
  step.p.resize(2);
  for (Distribution& p : step.p) p.assign_weights(std::vector<double>{1, 1});
  Acceptance out;
  const TargetRows rows = [&](int node) {
    return TargetRow{&step.p[static_cast<std::size_t>(node)], nullptr};
  };
  for (const char* rule :
       {"rejection", "rejection_any_order", "block", "traversal", "k_seq", "multi_path_block"}) {
    EXPECT_THROW(accept_on(machine, find_acceptance_rule(rule), {}, step.draft, rows, Coins(1, 1), 0, out),
                 Bug)
        << rule;
    EXPECT_THROW(accept(find_acceptance_rule(rule), {}, step.draft, rows, Coins(1, 1), 0, out), Bug) << rule;
  }
}

// The proof that accept() passes (enumeration_test.cpp), for the kernel.
class DeviceLossless : public testing::TestWithParam<const char*> {};

TEST_P(DeviceLossless, EmitsTheTargetsJointLaw) {
  using namespace enumerate;
  const AcceptanceRule& rule = find_acceptance_rule(GetParam());
  simt::Machine machine(2);
  const Verify verify = [&](auto&&... all) { accept_on(machine, all...); };
  const struct {
    int vocab;
    enumerate::Shape shape;
  } cases[] = {{5, {{1}}}, {3, {{1, 1}}}, {4, {{3}}}, {3, {{1, 2}}}, {2, {{2, 1}}}};
  std::mt19937 random(17);
  for (const auto& c : cases) {
    for (const enumerate::Rows kind : kAllRows) {
      const int length = static_cast<int>(c.shape.widths.size()) + 1;
      const World world = random_world(c.vocab, length, kind, false, random);
      for (const Draws draws : kAllDraws) {
        if (!takes(rule, c.shape, draws, kind)) continue;
        const enumerate::Law law = law_of([&](const Coins& coins) {
          return emit(world, c.shape, draws, rule, {.epsilon = 1}, length, coins, verify);
        });
        const std::map<enumerate::Outcome, double> target = target_law(world, length);
        double worst = 0;
        for (const auto& [outcome, mass] : target)
          worst = std::max(worst, std::abs(mass - (law.mass.count(outcome) > 0 ? law.mass.at(outcome) : 0)));
        for (const auto& [outcome, mass] : law.mass)
          worst = std::max(worst, target.count(outcome) > 0 ? 0 : mass);
        EXPECT_LE(worst, 1e-12) << GetParam() << ", rows " << static_cast<int>(kind) << ", draws "
                                << static_cast<int>(draws) << ", vocabulary " << c.vocab;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, DeviceLossless,
                         testing::Values("rejection", "one_hot_rejection", "sample_match", "non_iterative",
                                         "distillspec_exp", "rejection_any_order", "block", "traversal",
                                         "k_seq", "multi_path_block"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace speclab::device_acceptance_test
