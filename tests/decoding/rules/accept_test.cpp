#include "core/decoding/rules/accept.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/theory/audit/toy_step.h"

namespace speclab::accept_test {
namespace {

TEST(Registry, NamesAreUniqueAndCompleteAndEveryRuleIsWhole) {
  std::set<std::string_view> names;
  const std::set<std::string_view> fields = {
      "lenience",        "b",       "beta",           "gap",      "epsilon", "delta", "theta",
      "threshold_top_k", "streams", "token_distance", "min_block"};
  std::set<std::string_view> read;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_FALSE(rule.summary.empty());
    EXPECT_FALSE(rule.source.empty());
    EXPECT_TRUE(rule.loss && rule.bonus && rule.expected && rule.output_law) << rule.name;
    const bool walks = rule.verify == verify_by_walk || rule.name == "rejection_any_order";
    EXPECT_EQ(rule.test != nullptr, walks) << rule.name;
    for (const std::string_view option : option_names(rule)) {
      EXPECT_TRUE(fields.count(option)) << rule.name << " reads " << option;
      read.insert(option);
    }
    EXPECT_EQ(&find_acceptance_rule(rule.name), &rule);
    EXPECT_EQ(recorded_acceptance_rule(rule.name), &rule);
  }
  EXPECT_EQ(recorded_acceptance_rule("unheard of"), nullptr);
  EXPECT_EQ(read, fields);
  EXPECT_GE(names.size(), 30u) << "no table of rules is missing";
}

TEST(Registry, EveryParameterIsListedOnce) {
  std::set<std::string_view> names;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    for (const RuleOption* option : rule.options) names.insert(option->name);
  }
  EXPECT_EQ(all_rule_options().size(), names.size());
  for (const RuleOption* option : all_rule_options()) {
    EXPECT_TRUE(names.contains(option->name)) << option->name;
    EXPECT_TRUE(is_rule_option(option->name)) << option->name;
  }
  for (const char* other : {"rule", "coins", "temperature", "gamma"}) EXPECT_FALSE(is_rule_option(other));
}

// The reference of a case has the rule "auto", which means "rejection" or "coupled".
TEST(Registry, AParameterThatAReferenceReadsChangesIt) {
  const auto reads = [](const char* rule, const RuleOption* option) {
    const auto options = find_acceptance_rule(rule).options;
    return std::ranges::find(options, option) != options.end();
  };
  for (const RuleOption* option : all_rule_options()) {
    EXPECT_EQ(option->changes_reference, reads("rejection", option) || reads("coupled", option))
        << option->name;
  }
}

TEST(Registry, AParameterIsCopiedAlone) {
  const RuleOptions from{.delta = .7, .streams = 3};
  for (const RuleOption* option : all_rule_options()) {
    RuleOptions to;
    option->copy(from, to);
    EXPECT_EQ(to.delta, option->name == "delta" ? .7 : RuleOptions{}.delta) << option->name;
    EXPECT_EQ(to.streams, option->name == "streams" ? 3 : 1) << option->name;
  }
}

TEST(Registry, RulesSayWhatIsSpecialAboutThem) {
  const auto rules_that = [](bool AcceptanceRule::* property) {
    std::vector<std::string_view> names;
    for (const AcceptanceRule& rule : acceptance_rules()) {
      if (rule.*property) names.push_back(rule.name);
    }
    return names;
  };
  EXPECT_THAT(rules_that(&AcceptanceRule::accepts_by_depth), testing::ElementsAre("minimum_block"));
  EXPECT_THAT(rules_that(&AcceptanceRule::draws_until_accepted), testing::ElementsAre("iterative"));
  EXPECT_THAT(rules_that(&AcceptanceRule::keeps_paths_by_rho), testing::ElementsAre("block", "traversal"));
  std::map<ChainLaw, std::string_view> rule_of;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (!rule.chain_law) continue;
    EXPECT_TRUE(rule_of.emplace(*rule.chain_law, rule.name).second) << rule.name;
  }
  const std::map<ChainLaw, std::string_view> expected = {{ChainLaw::rejection, "rejection"},
                                                         {ChainLaw::sample_match, "sample_match"},
                                                         {ChainLaw::coupled, "coupled"},
                                                         {ChainLaw::block, "block"}};
  EXPECT_EQ(rule_of, expected);
}

TEST(Registry, AnUnknownRuleSuggestsTheNearestName) {
  for (const auto& [typo, meant] :
       {std::pair{"rejecton", "rejection"}, {"samplematch", "sample_match"}, {"tipical", "typical"}}) {
    try {
      find_acceptance_rule(typo);
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(typo));
      EXPECT_THAT(error.what(), testing::HasSubstr(meant));
    }
  }
}

TEST(Registry, LossClassesFollowTemperatureAndParameters) {
  const auto loss = [](const char* rule, const RuleOptions& options, double temperature) {
    return find_acceptance_rule(rule).loss(options, {.temperature = temperature});
  };
  for (const char* rule :
       {"rejection", "one_hot_rejection", "sample_match", "coupled", "non_iterative", "iterative"}) {
    EXPECT_EQ(loss(rule, {}, 1), LossClass::l1);
    EXPECT_EQ(loss(rule, {}, 0), LossClass::l2);
  }
  EXPECT_EQ(loss("exact", {}, 0), LossClass::l2);
  EXPECT_EQ(loss("lenience", {.lenience = 1}, 1), LossClass::l1);
  EXPECT_EQ(loss("lenience", {.lenience = .5}, 1), LossClass::l3);
  EXPECT_EQ(loss("lenience", {.lenience = .5}, 0), LossClass::l3);
  EXPECT_EQ(loss("lenience", {.lenience = 1}, 0), LossClass::l2);
  EXPECT_EQ(loss("uniform_b", {.b = .5}, 1), LossClass::l3);
  EXPECT_EQ(loss("uniform_b", {.b = .5}, 0), LossClass::l2);
  EXPECT_EQ(loss("distillspec_exp", {.epsilon = .5}, 1), LossClass::l3);
  EXPECT_EQ(loss("top_beta", {.beta = 1}, 0), LossClass::l2);
  EXPECT_EQ(loss("top_beta", {.beta = 1}, 1), LossClass::l3);
  EXPECT_EQ(loss("top_beta", {.beta = 2}, 0), LossClass::l3);
  EXPECT_EQ(loss("gap", {.gap = 0}, 0), LossClass::l2);
  EXPECT_EQ(loss("specdec", {.beta = 3, .gap = 0}, 0), LossClass::l2);
  EXPECT_EQ(loss("specdec", {.beta = 1, .gap = 2}, 0), LossClass::l2);
  EXPECT_EQ(loss("specdec", {.beta = 3, .gap = 2}, 0), LossClass::l3);
  EXPECT_EQ(loss("specdec", {}, 1), LossClass::l3);
  EXPECT_EQ(loss("specdec_longest", {.beta = 3, .gap = 0}, 0), LossClass::l2);
  EXPECT_EQ(loss("specdec_longest", {.beta = 3, .gap = 2}, 0), LossClass::l3);
  EXPECT_EQ(loss("distance", {}, 0), LossClass::l2);
  EXPECT_EQ(loss("distance", {.distance = 1}, 0), LossClass::l3);
  EXPECT_EQ(loss("distance_longest", {.distance = 1}, 0), LossClass::l3);
  EXPECT_EQ(loss("minimum_block", {}, 0), LossClass::l2);
  EXPECT_EQ(loss("minimum_block", {.beta = 2}, 0), LossClass::l3);
  EXPECT_EQ(loss("minimum_block", {.min_block = 2}, 0), LossClass::l3);
  EXPECT_EQ(loss("typical", {}, 0), LossClass::l3);
  EXPECT_EQ(loss("threshold", {}, 1), LossClass::l3);
  EXPECT_EQ(to_string(LossClass::l3), "L3");
}

Distribution row(std::vector<double> weights) {
  Distribution d;
  d.assign_weights(weights);
  return d;
}

/// The criterion of a rule on fixed tokens at temperature 0, for a raw row; p is its argmax.
std::vector<Token> accepted_at_zero(const char* rule, const RuleOptions& options, const Distribution& raw) {
  Distribution p;
  p.assign_one_hot(raw.argmax(), raw.vocab());
  std::vector<Token> out;
  const Coins coins(0, 0);
  NodeVerdict verdict;
  for (Token x = 0; x < raw.vocab(); ++x) {
    const NodeTest::Child child{x, nullptr};
    find_acceptance_rule(rule).test({{&p, &raw}, {&child, 1}, &coins, 1}, options, verdict);
    if (verdict.accepted == 0) {
      out.push_back(x);
    } else {
      EXPECT_EQ(verdict.correction, raw.argmax());
    }
  }
  return out;
}

// The formulas of the rules on one row, by hand.
TEST(LossyAtTemperatureZero, AcceptsByTheRawRow) {
  const Distribution raw = row({.5, .3, .15, .05, 0});
  using testing::ElementsAre;
  EXPECT_THAT(accepted_at_zero("exact", {}, raw), ElementsAre(0));
  EXPECT_THAT(accepted_at_zero("rejection", {}, raw), ElementsAre(0));
  EXPECT_THAT(accepted_at_zero("lenience", {.lenience = .5}, raw), ElementsAre(0, 1));
  EXPECT_THAT(accepted_at_zero("lenience", {.lenience = .29}, raw), ElementsAre(0, 1, 2));
  EXPECT_THAT(accepted_at_zero("top_beta", {.beta = 2}, raw), ElementsAre(0, 1));
  EXPECT_THAT(accepted_at_zero("top_beta", {.beta = 9}, raw),
              ElementsAre(0, 1, 2, 3));  // a token of mass 0 is never accepted
  EXPECT_THAT(accepted_at_zero("gap", {.gap = std::log(.5 / .15) + 1e-6}, raw), ElementsAre(0, 1, 2));
  EXPECT_THAT(accepted_at_zero("gap", {.gap = std::log(.5 / .15) - 1e-6}, raw), ElementsAre(0, 1));
  // SpecDec asks for both conditions.
  const double to_third = std::log(.5 / .15) + 1e-6;
  EXPECT_THAT(accepted_at_zero("specdec", {.beta = 3, .gap = to_third}, raw), ElementsAre(0, 1, 2));
  EXPECT_THAT(accepted_at_zero("specdec", {.beta = 2, .gap = to_third}, raw), ElementsAre(0, 1));
  EXPECT_THAT(accepted_at_zero("specdec", {.beta = 3, .gap = std::log(.5 / .3) + 1e-6}, raw),
              ElementsAre(0, 1));
  EXPECT_THAT(accepted_at_zero("specdec", {.beta = 1, .gap = 9}, raw), ElementsAre(0));
  // The distance counts token ids on both sides of the best token.
  const Distribution middle = row({.1, .2, .3, .2, .2, 0});
  EXPECT_THAT(accepted_at_zero("distance", {}, middle), ElementsAre(2));
  EXPECT_THAT(accepted_at_zero("distance", {.distance = 1}, middle), ElementsAre(1, 2, 3));
  EXPECT_THAT(accepted_at_zero("distance", {.distance = 1 << 30}, middle), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(accepted_at_zero("threshold", {.theta = .15 - 1e-8}, raw), ElementsAre(0, 1, 2));
  EXPECT_THAT(accepted_at_zero("threshold", {.theta = .1, .top_k = 2}, raw), ElementsAre(0, 1));
  EXPECT_THAT(accepted_at_zero("threshold", {.theta = .6}, raw), ElementsAre());
  // H = 1.1421 nats, exp(-H) = .3191: the bar is min(.09, .3 * .3191 = .0957) = .09, then min(.2, .9 * .3191
  // = .287).
  EXPECT_THAT(accepted_at_zero("typical", {}, raw), ElementsAre(0, 1, 2));
  EXPECT_THAT(accepted_at_zero("typical", {.epsilon = .2, .delta = .9}, raw), ElementsAre(0, 1));
  EXPECT_THAT(accepted_at_zero("typical", {.epsilon = .9, .delta = .16}, raw),
              ElementsAre(0, 1, 2));  // bar .0511
  // At the bar itself: typical must exceed it, threshold may equal it.
  const Distribution quarters = row({.5, .25, .25});
  EXPECT_THAT(accepted_at_zero("typical", {.epsilon = .25, .delta = 9}, quarters), ElementsAre(0));
  EXPECT_THAT(accepted_at_zero("threshold", {.theta = .25}, quarters), ElementsAre(0, 1, 2));
  // For two tied tokens, the tightest parameters accept the lower id only.
  const Distribution tied = row({.1, .45, .45});
  EXPECT_THAT(accepted_at_zero("lenience", {.lenience = 1}, tied), ElementsAre(1));
  EXPECT_THAT(accepted_at_zero("gap", {.gap = 0}, tied), ElementsAre(1));
  EXPECT_THAT(accepted_at_zero("top_beta", {.beta = 1}, tied), ElementsAre(1));
}

// After a rejection above temperature 0, a token of the typical set or of p is emitted.
TEST(Lossy, CorrectionsComeFromTheTypicalSetOrFromTheTarget) {
  const Distribution p = row({.5, .3, .15, .05});
  const auto law_after_rejecting = [&](const char* rule, const RuleOptions& options) {
    std::vector<double> law;
    find_acceptance_rule(rule).output_law({&p, &p}, nullptr, 3, options, law);
    for (double& mass : law) mass = std::round(mass * 1e6) / 1e6;
    return law;
  };
  using testing::ElementsAre;
  EXPECT_THAT(law_after_rejecting("typical", {.epsilon = .2, .delta = .9}), ElementsAre(.625, .375, 0, 0));
  EXPECT_THAT(law_after_rejecting("threshold", {.theta = .1}), ElementsAre(.5, .3, .15, .05));
  EXPECT_THAT(law_after_rejecting("top_beta", {.beta = 3}), ElementsAre(.5, .3, .15, .05));
  EXPECT_THAT(law_after_rejecting("gap", {.gap = 1}), ElementsAre(.5, .3, .15, .05));
  EXPECT_THAT(law_after_rejecting("gap", {.gap = 3}), ElementsAre(0, 0, 0, 1));
}

/// A chain 1, 2 after the pending token 0 with fixed draft rows and a target row per node.
struct Chain {
  Draft draft;
  std::vector<Distribution> p;
  std::vector<int> asked;
  Acceptance out;
  void run(const char* rule, const Coins& coins, std::int64_t position = 10) {
    asked.clear();
    accept(
        find_acceptance_rule(rule), {}, draft,
        [&](int node) {
          asked.push_back(node);
          return TargetRow{&p[node], &p[node]};
        },
        coins, position, out);
  }
};

Chain chain_of(std::vector<Distribution> p, const Distribution& q) {
  Chain chain;
  chain.p = std::move(p);
  chain.draft.reset(0);
  for (Token x : {1, 2}) {
    int index = -1;
    chain.draft.new_q(&index) = q;
    chain.draft.add(x, x - 1, index);
  }
  return chain;
}

TEST(Accept, WalksToTheLeafAndAsksOnlyForRowsThatItReaches) {
  const Distribution q = row({.2, .4, .4});
  Chain all = chain_of({row({0, 1, 0}), row({0, 0, 1}), row({1, 0, 0})}, q);
  all.out.want_ranks = true;
  all.run("rejection", Coins(1, 1));
  EXPECT_THAT(all.out.path, testing::ElementsAre(1, 2));
  EXPECT_TRUE(all.out.bonus);
  EXPECT_EQ(all.out.next, 0);
  EXPECT_THAT(all.asked, testing::ElementsAre(0, 1, 2));
  ASSERT_EQ(all.out.tested.size(), 2u);
  EXPECT_EQ(all.out.tested[1].node, 2);
  EXPECT_EQ(all.out.tested[1].p, 1);
  EXPECT_NEAR(all.out.tested[1].q, .4, 1e-7);
  EXPECT_NEAR(all.out.tested[1].expected, .4, 1e-7);
  EXPECT_EQ(all.out.tested[1].rank, 0);
  EXPECT_TRUE(all.out.tested[1].accepted);

  Chain none = chain_of({row({1, 0, 1}), row({0, 0, 1}), row({1, 0, 0})}, q);
  for (int i = 0; i < 1000; ++i) {
    none.run("rejection", Coins(i, 1));
    ASSERT_TRUE(none.out.path.empty());
    ASSERT_FALSE(none.out.bonus);
    ASSERT_NE(none.out.next, 1);
    ASSERT_THAT(none.asked, testing::ElementsAre(0));
    ASSERT_EQ(none.out.tested.size(), 1u);
    ASSERT_FALSE(none.out.tested[0].accepted);
    ASSERT_EQ(none.out.tested[0].rank, -1);
  }
}

// Each step keeps min_block - 1 drafted tokens, whatever they are, and judges the others by top-beta.
TEST(MinimumBlock, KeepsThePrefixOfTheDraft) {
  const AcceptanceRule& rule = find_acceptance_rule("minimum_block");
  const Distribution raw = row({.5, .3, .2, 0});
  Distribution p;
  p.assign_one_hot(0, 4);
  const auto kept = [&](const std::vector<Token>& tokens, const RuleOptions& options) {
    Draft draft;
    draft.reset(0);
    for (const Token token : tokens) draft.add(token, draft.tree.size() - 1);
    Acceptance out;
    accept(rule, options, draft, [&](int) { return TargetRow{&p, &raw}; }, Coins(1, 1), 10, out);
    EXPECT_EQ(out.next, 0);
    EXPECT_EQ(out.bonus, out.path.size() == tokens.size());
    EXPECT_EQ(out.tested.size(), out.path.size() + (out.bonus ? 0 : 1));
    return out.path.size();
  };
  EXPECT_EQ(kept({2, 1, 0, 0}, {.min_block = 1}), 0u);
  EXPECT_EQ(kept({2, 1, 0, 0}, {.min_block = 2}), 1u);
  EXPECT_EQ(kept({2, 1, 0, 0}, {.min_block = 3}), 4u);
  EXPECT_EQ(kept({2, 1, 0, 2}, {.min_block = 3}), 3u);
  EXPECT_EQ(kept({2, 1, 1, 2}, {.beta = 2, .min_block = 2}), 3u);
  EXPECT_EQ(kept({2, 1}, {.min_block = 9}), 2u);
  EXPECT_EQ(kept({3, 0}, {.min_block = 3}), 0u);  // a token of probability 0 is not even kept then
}

// A kept token follows the draft's law, so at the first node the law of the text is q.
TEST(MinimumBlock, HasTheDraftsLawWhereTokensAreKept) {
  const AcceptanceRule& rule = find_acceptance_rule("minimum_block");
  const Distribution p = row({.5, .3, .15, .05}), q = row({.1, .2, .3, .4});
  std::vector<double> law;
  rule.output_law({&p, &p}, &q, -1, {.min_block = 2}, law);
  for (Token x = 0; x < 4; ++x) EXPECT_NEAR(law[static_cast<std::size_t>(x)], q.prob(x), 1e-7) << x;
  EXPECT_NEAR(rule.expected({&p, &p}, &q, -1, {.min_block = 2}), 1, 1e-7);
  EXPECT_NEAR(rule.expected({&p, &p}, &q, -1, {.beta = 2}), .3, 1e-7);
}

TEST(Accept, NoDraftIsAutoregressiveDecoding) {
  Chain chain;
  chain.p = {row({1, 2, 3})};
  chain.draft.reset(0);
  const Coins coins(4, 4);
  for (const AcceptanceRule& rule : acceptance_rules()) {
    chain.run(std::string(rule.name).c_str(), coins);
    EXPECT_TRUE(chain.out.bonus);
    EXPECT_TRUE(chain.out.tested.empty());
    EXPECT_EQ(chain.out.next, rule.bonus({&chain.p[0], &chain.p[0]}, coins, 11, {})) << rule.name;
  }
}

TEST(Accept, ProbesAreNeverAccepted) {
  Chain chain;
  chain.p = {row({0, 1, 0})};
  chain.draft.reset(0);
  chain.draft.add_probe(1, 0);
  chain.run("exact", Coins(0, 0));
  EXPECT_TRUE(chain.out.path.empty());
  EXPECT_TRUE(chain.out.bonus);
  EXPECT_EQ(chain.out.next, 1);
}

TEST(Accept, ADraftRowWithoutMassOnItsTokenIsABug) {
  Chain chain = chain_of({row({1, 1, 1}), row({1, 1, 1}), row({1, 1, 1})}, row({1, 0, 1}));
  EXPECT_THROW(chain.run("rejection", Coins(0, 0)), Bug);
  Chain other = chain_of({row({1, 1, 1, 1}), row({1, 1, 1}), row({1, 1, 1})}, row({1, 1, 1}));
  EXPECT_THROW(other.run("rejection", Coins(0, 0)), Bug);
}

// The token at a position depends on (row, position, seed) alone, so the text is the same for every draft.
TEST(Accept, MatchingRulesEmitTheTextOfAutoregressiveDecoding) {
  using namespace enumerate;
  std::mt19937 random(2);
  const World world = random_world(4, 4, enumerate::Rows::generic, false, random);
  for (const char* name : {"sample_match", "coupled"}) {
    const AcceptanceRule& rule = find_acceptance_rule(name);
    for (int seed = 0; seed < 300; ++seed) {
      const Coins coins(seed, 0);
      const enumerate::Outcome plain = emit(world, {{}}, Draws::iid, rule, {}, 4, coins);
      for (const Draws draws : kAllDraws) {
        EXPECT_EQ(emit(world, {{1, 1, 1}}, draws, rule, {}, 4, coins), plain);
        EXPECT_EQ(emit(world, {{3, 2}}, draws, rule, {}, 4, coins), plain);
      }
    }
  }
}

// A draft drawn with the same noise has the acceptance of its closed form (Daliri et al. 2024).
TEST(Coupled, AcceptanceMeetsItsClosedForm) {
  const Distribution p = row({.55, .25, .15, .05}), q = row({.4, .35, .05, .2});
  const AcceptanceRule& rule = find_acceptance_rule("coupled");
  const TargetRow target{&p, &p};
  const double closed = rule.expected(target, &q, -1, {});
  EXPECT_NEAR(closed, .706, 5e-4);
  NodeVerdict verdict;
  const int n = 40000;
  int accepted = 0;
  for (int i = 0; i < n; ++i) {
    const Coins coins(i, 3);
    const NodeTest::Child child{q.sample_coupled(coins, 5), &q};
    rule.test({target, {&child, 1}, &coins, 5}, {}, verdict);
    ASSERT_EQ(verdict.expected.size(), 1u);
    ASSERT_EQ(verdict.expected[0], closed);
    accepted += verdict.accepted == 0;
  }
  EXPECT_NEAR(accepted / double(n), closed, 4 * std::sqrt(closed * (1 - closed) / n));
  EXPECT_NEAR(rule.expected(target, &p, -1, {}), 1, 1e-12);
  EXPECT_NEAR(rule.expected(target, nullptr, 1, {}), .25, 1e-7);
}

TEST(Coupled, ClosedFormEqualsTheQuadraticSum) {
  std::mt19937 random(6);
  const AcceptanceRule& rule = find_acceptance_rule("coupled");
  for (int i = 0; i < 50; ++i) {
    std::vector<double> a(40), b(40);
    for (double& w : a) w = random() % 4 == 0 ? 0 : 1 + random() % 100;
    for (double& w : b) w = random() % 4 == 0 ? 0 : 1 + random() % 100;
    const Distribution p = row(a), q = row(b);
    double sum = 0;
    for (Token x = 0; x < 40; ++x) {
      if (p.prob(x) <= 0 || q.prob(x) <= 0) continue;
      double inner = 0;
      for (Token y = 0; y < 40; ++y) inner += std::max(p.prob(y) / p.prob(x), q.prob(y) / q.prob(x));
      sum += 1 / inner;
    }
    EXPECT_NEAR(rule.expected({&p, &p}, &q, -1, {}), sum, 1e-9);
  }
}

// Compares frequencies of the emitted token with p, with real coins and a vocabulary of several SIMD blocks.
TEST(Rejection, EmitsTheTargetsLawWithRealCoins) {
  std::mt19937 random(8);
  std::vector<double> a(100), b(100);
  for (double& w : a) w = random() % 3 == 0 ? 0 : std::pow(1e-3, (random() % 1000) / 1000.0);
  for (double& w : b) w = random() % 3 == 0 ? 0 : std::pow(1e-3, (random() % 1000) / 1000.0);
  const Distribution p = row(a), q = row(b);
  const AcceptanceRule& rule = find_acceptance_rule("rejection");
  const int n = 60000;
  std::vector<double> counts(100);
  double accepted = 0;
  NodeVerdict verdict;
  for (int i = 0; i < n; ++i) {
    const Coins coins(i, 0);
    std::vector<NodeTest::Child> children;
    for (std::uint32_t j = 0; j < 2; ++j) children.push_back({q.sample(coins, {9, Purpose::draft, j}), &q});
    rule.test({{&p, &p}, children, &coins, 9}, {}, verdict);
    accepted += verdict.expected.size() == 1 && verdict.accepted == 0;
    ++counts[verdict.accepted >= 0 ? children[verdict.accepted].token : verdict.correction];
  }
  double distance = 0;
  for (Token x = 0; x < 100; ++x) {
    EXPECT_TRUE(p.prob(x) > 0 || counts[x] == 0) << x;
    distance += std::abs(counts[x] / n - p.prob(x)) / 2;
  }
  // E[TV] <= sqrt((V - 1) / N) / 2, and the chance of .0155 more is below exp(-2 N .0155^2) =
  // 3e-13.
  EXPECT_LT(distance, std::sqrt(99.0 / n) / 2 + .0155);
  const double alpha = overlap(p, q);
  EXPECT_NEAR(accepted / n, alpha, 4 * std::sqrt(alpha * (1 - alpha) / n));
}

}  // namespace
}  // namespace speclab::accept_test
