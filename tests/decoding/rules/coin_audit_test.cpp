// No coin is used twice in a generation.
//
// A coin is the number at one address: position, purpose, draw. Two decisions that take the same number
// depend on each other; the law of the text can then be wrong although each decision by itself is right, and
// enumeration, which gives every question a branch of its own, does not see it.
//
// Every number that was taken from the generator counts as used, from the first token of the text to the
// last. A question whose answer is certain (a test with probability 0 or 1, a row with one token) takes no
// number.
//
// Drafted tokens after a rejection count as well, although no rule has tested them. Their values can matter.
// Such a token may have made a schedule stop. Then there was room for one more copy in the tree, and that
// copy may have been accepted. So the token that was not tested helped to decide where the step ended. If the
// next step drew its token for the same place in the text with the same coin, that coin would be biased. The
// audit therefore does not ask which tokens were tested.
//
// One exception, by purpose: the Gumbel noise of a position (Purpose::gumbel). Coupled sampling shares it by
// design. The noise alone decides the target's token there, whatever was drafted, so a drafter may use it as
// often as it likes. The rule's own use counts, and there must be one for each position.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "tests/decoding/rules/markov_cases.h"

namespace speclab::coin_audit_test {
namespace {

using namespace speclab::fixtures;
using markov::Case;
using markov::Generations;

/// Notes the coins of one generation.
struct Audit {
  using Key = std::tuple<std::int64_t, Purpose, std::uint32_t>;
  bool drafting = false;  // the strategy is drafting; otherwise the rule decides
  std::map<Key, int> questions;
  std::vector<std::string> twice;
  std::set<Purpose> purposes;
  int count = 0;

  void note(const Coins::Address& coin) {
    ++count;
    purposes.insert(coin.purpose);
    if (coin.purpose == Purpose::gumbel && drafting) return;
    const auto [first, is_new] = questions.insert({{coin.position, coin.purpose, coin.draw}, count});
    if (is_new) return;
    twice.push_back(fmt::format("position {}, purpose {}, draw {}: questions {} and {}", coin.position,
                                static_cast<int>(coin.purpose), coin.draw, first->second, count));
  }
};

/// A strategy that tells the audit when it drafts.
class Announced final : public Strategy {
 public:
  struct Options {
    StrategyChoice inner;
    Audit* audit;
  };
  Announced(const Options& options, const Resources& resources)
      : inner_(options.inner.make(resources)), audit_(options.audit) {}

  int max_nodes() const override { return inner_->max_nodes(); }
  Reads reads() const override { return inner_->reads(); }
  TargetUse target_use() const override { return inner_->target_use(); }
  void observe_prompt(const Sequence& sequence, const PromptStates& states) override {
    audit_->drafting = true;
    inner_->observe_prompt(sequence, states);
    audit_->drafting = false;
  }
  void begin(const Sequence& sequence) override {
    audit_->drafting = true;
    inner_->begin(sequence);
    audit_->drafting = false;
  }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    audit_->drafting = true;
    inner_->draft(sequences, drafts);
    audit_->drafting = false;
  }
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    audit_->drafting = true;
    inner_->observe(sequences, outcomes);
    audit_->drafting = false;
  }

  /// Valid until the next call.
  static StrategyEntry entry(const StrategyChoice& inner, Audit* audit) {
    static const Options* source = nullptr;
    static std::shared_ptr<Options> last;
    last = std::make_shared<Options>(Options{inner, audit});
    source = last.get();
    StrategyInfo info = inner.info();
    info.needs_file = {};
    return {info,
            [](const void* copy_of) -> std::shared_ptr<void> {
              return std::make_shared<Options>(copy_of ? *static_cast<const Options*>(copy_of) : *source);
            },
            [](void*, OptionVisitor&) {},
            [](const void* options, const Resources& resources) -> std::unique_ptr<Strategy> {
              return std::make_unique<Announced>(*static_cast<const Options*>(options), resources);
            },
            nullptr,
            [](const void* options) { return static_cast<const Options*>(options)->inner.needs_costs(); }};
  }

 private:
  std::unique_ptr<Strategy> inner_;
  Audit* audit_;
};

json options_of(const AcceptanceRule& rule) {
  json options = {{"rule", rule.name}, {"temperature", 1}, {"max_tokens", 40}};
  if (rule.name == "coupled") options["coins"] = "gumbel";
  return options;
}

/// Audits several generations into one object.
template <class Visit>
void audit(const Case& c, const json& options, std::uint64_t seeds, const Visit& visit) {
  Audit notes;
  const StrategyEntry entry = Announced::entry(c.strategy, &notes);
  Case announced = c;
  announced.strategy = StrategyChoice(entry);
  Generations generations(announced, options);
  Coins::Watch watch = [&](const Coins::Address& coin, double number) {
    notes.note(coin);
    return number;
  };
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    notes = Audit();
    const GenerationRecord record = generations.run(Coins::watched(seed, 1, &watch));
    EXPECT_EQ(record.tokens, generations.run(Coins(seed, 1)).tokens) << "watching changes nothing";
    visit(notes, record);
  }
}

class CoinAudit : public ::testing::TestWithParam<std::string> {};

TEST_P(CoinAudit, NoCoinIsUsedTwice) {
  const AcceptanceRule& rule = find_acceptance_rule(GetParam());
  for (const Case& c : markov::all_cases()) {
    if (!markov::takes(rule, c)) continue;
    SCOPED_TRACE(c.name);
    audit(c, options_of(rule), 10, [&](const Audit& notes, const GenerationRecord& record) {
      ASSERT_EQ(notes.twice, std::vector<std::string>());
      const int least = rule.name == "exact" ? 0 : static_cast<int>(record.steps.size()) / 2;
      ASSERT_GE(notes.count, least);
    });
  }
}

std::vector<std::string> all_rules() {
  std::vector<std::string> names;
  for (const AcceptanceRule& rule : acceptance_rules()) names.emplace_back(rule.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Rules, CoinAudit, ::testing::ValuesIn(all_rules()),
                         [](const auto& info) { return info.param; });

TEST(CoinAuditOf, TruncatedRowsAndEndTokens) {
  for (const Case& c : markov::all_cases()) {
    SCOPED_TRACE(c.name);
    json options = options_of(find_acceptance_rule("rejection"));
    options.update({{"temperature", .8}, {"top_k", 2}, {"top_p", .95}, {"repetition_penalty", 1.2}});
    audit(c, options, 5, [](const Audit& notes, const GenerationRecord&) {
      ASSERT_EQ(notes.twice, std::vector<std::string>());
    });
  }
}

// The audit notes coins of every purpose.
TEST(CoinAuditOf, EveryPurposeIsSeen) {
  std::set<Purpose> seen;
  for (const char* rule : {"rejection", "coupled"}) {
    for (const Case& c : markov::all_cases()) {
      audit(c, options_of(find_acceptance_rule(rule)), 2, [&](const Audit& notes, const GenerationRecord&) {
        seen.insert(notes.purposes.begin(), notes.purposes.end());
      });
    }
  }
  EXPECT_EQ(seen, (std::set<Purpose>{Purpose::target, Purpose::draft, Purpose::accept, Purpose::residual,
                                     Purpose::gumbel, Purpose::simulate}));
}

TEST(CoinAuditOf, SharedCoinsAreSeen) {
  for (const markov::SharedCoins& shared : markov::shared_coins()) {
    Generations generations(shared.c, {{"rule", shared.rule}, {"temperature", 1}, {"max_tokens", 40}});
    int found = 0;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      Audit notes;
      Coins::Watch watch = [&](const Coins::Address& asked, double) {
        notes.note(shared.instead(asked));
        return Coins(seed, 1).uniform(shared.instead(asked));
      };
      generations.run(Coins::watched(seed, 1, &watch));
      found += notes.twice.empty() ? 0 : 1;
    }
    EXPECT_GE(found, 5) << shared.name;
  }
}

// Only drafters may reuse noise, and only noise may be reused.
TEST(CoinAuditOf, OnlyDraftersMayUseNoiseAgain) {
  Audit notes;
  notes.drafting = true;
  notes.note({3, Purpose::gumbel, 0});
  notes.note({3, Purpose::gumbel, 0});
  notes.drafting = false;
  notes.note({3, Purpose::gumbel, 0});
  EXPECT_TRUE(notes.twice.empty());
  notes.note({3, Purpose::gumbel, 0});
  EXPECT_EQ(notes.twice.size(), 1u);
  notes.drafting = true;
  notes.note({4, Purpose::draft, 0});
  notes.note({4, Purpose::draft, 0});
  EXPECT_EQ(notes.twice.size(), 2u);
}

}  // namespace
}  // namespace speclab::coin_audit_test
