// The exact joint law end to end: the real loop, strategies and rules on first-order Markov chains, walking
// all branches of every coin. Finds wrong rows, wrong caches and wrong commits, which tests of single tokens
// miss.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/loop/prefill_cache.h"
#include "tests/decoding/rules/markov_cases.h"

namespace speclab::markov_test {
namespace {

using namespace speclab::fixtures;
using enumerate::Law;
using markov::Case;
using markov::chain_law;
using markov::kVocab;

class Markov : public ::testing::Test {
 protected:
  ModelPtr target = random_markov(kVocab, 11, 1.5);
  ModelPtr draft = random_markov(kVocab, 12, 1.5);

  Law run(const Case& c, const std::string& rule, const json& more, int count, Token eos = -1,
          double least = 0, int* accepted = nullptr) const {
    json options = {{"max_tokens", count}, {"rule", rule}, {"temperature", 1}};
    options.update(more);
    Decode decode{
        .target = target, .draft = draft, .strategy = c.strategy, .options = options, .prompt = c.prompt};
    decode.reference = {1, 0, 2, 1};
    if (eos >= 0) decode.eos = {eos};
    LoopOptions loop_options;  // every branch is a text, so nothing is computed that is not compared
    loop_options.capacity = 32;
    loop_options.hash_rows = loop_options.details = false;
    loop_options.prefills = std::make_shared<PrefillCache>();
    loop_options.costs = markov::costs_of(c);
    DecodeLoop loop(target, markov::drafts_of(c), c.strategy, loop_options);
    Request request = decode.request();
    request.prompt = decode.prompt;
    request.reference = decode.reference;
    return enumerate::law_of(
        [&](const Coins& coins) {
          request.coins = coins;
          const GenerationRecord record = loop.run(request);
          if (accepted) *accepted += total(record, &StepRecord::accepted);
          return record.tokens;
        },
        least);
  }
};

TEST_F(Markov, EveryStrategyWithEveryLosslessRuleHasTheTargetsLaw) {
  const auto expected = chain_law(target, {.temperature = 1, .top_k = 0, .top_p = 1}, 1, 4);
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.loss({}, {.temperature = 1, .top_k = 0, .top_p = 1}) != LossClass::l1 || rule.name == "coupled")
      continue;
    const double least = rule.name.starts_with("iterative") ? 1e-7 : 0;
    std::vector<Case> cases = markov::small_cases();
    for (Case& c : markov::independent_cases()) cases.push_back(std::move(c));
    for (const Case& c : cases) {
      if ((least > 0 && !c.patient) || !markov::takes(rule, c)) continue;
      const int count = least > 0 ? 3 : 4;
      int accepted = 0;
      const Law law = run(c, std::string(rule.name), json::object(), count, -1, least, &accepted);
      const auto shorter =
          count == 4 ? expected : chain_law(target, {.temperature = 1, .top_k = 0, .top_p = 1}, 1, count);
      EXPECT_LT(enumerate::total_variation(law.mass, shorter), 1e-12 + law.pruned)
          << c.name << ", " << rule.name;
      EXPECT_LT(law.pruned, .01);
      // Classical rejection sampling accepts nothing if q misses support of p.
      const bool classical = rule.name.ends_with("iterative");
      if (!classical || c.name == "autoregressive") {
        EXPECT_EQ(accepted > 0, c.name != "autoregressive") << c.name << ", " << rule.name;
      }
    }
  }
}

// The rules that judge whole paths, on a drawn chain of each kind of trained head.
TEST_F(Markov, HeadsUnderRulesOverWholePathsHaveTheTargetsLaw) {
  const auto expected = chain_law(target, {.temperature = 1, .top_k = 0, .top_p = 1}, 1, 4);
  for (const Case& c : markov::drawn_chains_of_heads()) {
    for (const char* rule : {"block", "traversal"}) {
      int accepted = 0;
      const Law law = run(c, rule, json::object(), 4, -1, 0, &accepted);
      EXPECT_LT(enumerate::total_variation(law.mass, expected), 1e-12) << c.name << ", " << rule;
      EXPECT_GT(accepted, 0) << c.name << ", " << rule;
    }
  }
}

TEST_F(Markov, TruncatedRowsAndEndTokens) {
  const SamplingParams sampling{.temperature = .8, .top_k = 2, .top_p = .95};
  const json options = {{"temperature", .8}, {"top_k", 2}, {"top_p", .95}};
  const auto expected = chain_law(target, sampling, 1, 4);
  const auto ending = chain_law(target, sampling, 1, 4, 2);
  EXPECT_GT(enumerate::total_variation(expected, ending), .05);
  for (const Case& c : markov::small_cases()) {
    EXPECT_LT(enumerate::total_variation(run(c, "rejection", options, 4).mass, expected), 1e-12) << c.name;
    EXPECT_LT(enumerate::total_variation(run(c, "rejection", options, 4, 2).mass, ending), 1e-12) << c.name;
  }
}

/// E[accepted tokens] of SpecTr's K-SEQ for two independent chains of two tokens: of a step whose pending
/// token the target draws after the token `last`.
double accepted_by_spectr(const ModelPtr& target, const ModelPtr& draft, Token last) {
  using Row = std::vector<double>;
  const auto row_after = [](const ModelPtr& model, Token token) {
    Row row(kVocab);
    for (const auto& [text, p] : chain_law(model, {.temperature = 1, .top_k = 0, .top_p = 1}, token, 1))
      row[static_cast<std::size_t>(text.front())] += p;
    return row;
  };
  const auto beta = [](const Row& p, const Row& q, double rho) {
    double mass = 0;
    for (std::size_t x = 0; x < q.size(); ++x) mass += std::min(q[x], p[x] / rho);
    return mass;
  };
  const auto best_rho = [&](const Row& p, const Row& q) {  // for two drafts
    double low = 1, high = 2;
    for (int i = 0; i < 60; ++i) {
      const double rho = (low + high) / 2, accepted = beta(p, q, rho);
      (1 - (1 - accepted) * (1 - accepted) <= rho * accepted ? high : low) = rho;
    }
    return high;
  };
  // P(a child is accepted after this token) by the number of chains that go on.
  const auto next_accepted = [&](Token token, int chains) {
    const Row p = row_after(target, token), q = row_after(draft, token);
    if (chains == 1) return beta(p, q, 1);
    const double failed = 1 - beta(p, q, best_rho(p, q));
    return 1 - failed * failed;
  };
  double expected = 0;
  const Row pending = row_after(target, last);
  for (Token token = 0; token < kVocab; ++token) {
    const Row p = row_after(target, token), q = row_after(draft, token);
    const double rho = best_rho(p, q);
    for (Token first = 0; first < kVocab; ++first) {
      for (Token second = 0; second < kVocab; ++second) {
        const auto passes = [&](Token x) {
          const auto i = static_cast<std::size_t>(x);
          return std::min(1.0, p[i] / (rho * q[i]));
        };
        const double drawn = pending[static_cast<std::size_t>(token)] * q[static_cast<std::size_t>(first)] *
                             q[static_cast<std::size_t>(second)];
        const int chains = first == second ? 2 : 1;
        expected += drawn * passes(first) * (1 + next_accepted(first, chains));
        expected += drawn * (1 - passes(first)) * passes(second) * (1 + next_accepted(second, chains));
      }
    }
  }
  return expected;
}

// K-SEQ goes on with all chains that begin with the accepted token (SpecTr: Sun et al. 2023, arXiv
// 2310.15141). merged_trees hangs the tokens that follow equal ones below the first of them, so both go on.
// tree_speculation keeps equal tokens apart, so one goes on and the step keeps fewer tokens.
TEST_F(Markov, KSeqKeepsMoreOfChainsThatShareTheirFirstTokens) {
  const auto kept = [&](const char* strategy, const json& options) {
    DecodeLoop loop(target, std::vector<ModelPtr>{draft}, choose(strategy, options), {.capacity = 32});
    Request request =
        Decode{.target = target, .options = {{"max_tokens", 4}, {"rule", "k_seq"}, {"temperature", 1}}}
            .request();
    const std::vector<Token> prompt{0, 2, 1};
    request.prompt = prompt;
    double tokens = 0;
    int of_step = 0;
    enumerate::walk(
        [&](const Coins& coins) {
          request.coins = coins;
          of_step = loop.run(request).steps.front().accepted;
        },
        [&](double probability) { tokens += probability * of_step; });
    return tokens;
  };
  const double apart = kept("tree_speculation", {{"sequences", 2}, {"length", 2}});
  const double together = kept("merged_trees", {{"sequences", {2}}, {"length", 2}, {"sources", {"draft"}}});
  EXPECT_GT(together, apart + .02);
  EXPECT_NEAR(together, accepted_by_spectr(target, draft, 1), 1e-6);
}

TEST_F(Markov, ALossyRuleIsSeen) {
  const auto expected = chain_law(target, {.temperature = 1, .top_k = 0, .top_p = 1}, 1, 4);
  for (const Case& c : markov::small_cases()) {
    const double distance =
        enumerate::total_variation(run(c, "lenience", {{"lenience", .3}}, 4).mass, expected);
    if (c.name == "autoregressive") {
      EXPECT_LT(distance, 1e-12);
    } else {
      EXPECT_GT(distance, 1e-3) << c.name;
    }
  }
}

// Negative controls: the comparison above must notice a drafter with a small error.
class WrongQ final : public Strategy {  // hands over the argmax as if it had been drawn from the draft
 public:
  explicit WrongQ(const Resources& resources) : chain_({.gamma = 2, .schedule = {}}, resources) {}
  void begin(const Sequence& sequence) override { chain_.begin(sequence); }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    chain_.draft(sequences, drafts);
    Draft& draft = *drafts[0];
    if (draft.tree.drafted() == 0) return;
    const Token best = draft.q[0].argmax();
    const Token pending = draft.tree.token(0);
    draft.tree.reset(pending);
    draft.q_of.resize(1);
    draft.confidence.resize(1);
    draft.entropy.resize(1);
    draft.add(best, 0, 0);
  }

 private:
  DraftChain chain_;
};

class Discards final : public Strategy {  // drops a drawn token because of its value
 public:
  explicit Discards(const Resources& resources) : chain_({.gamma = 1, .schedule = {}}, resources) {}
  void begin(const Sequence& sequence) override { chain_.begin(sequence); }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    chain_.draft(sequences, drafts);
    if (drafts[0]->tree.drafted() > 0 && drafts[0]->q[0].prob(drafts[0]->tree.token(1)) < .4)
      drafts[0]->reset(drafts[0]->tree.token(0));
  }

 private:
  DraftChain chain_;
};

class AsIfWithReplacement final : public Strategy {  // hands over every sibling with the law of the first one
 public:
  explicit AsIfWithReplacement(const Resources& resources)
      : tree_(choose("tree_speculation", {{"widths", {2, 1}}}).make(resources)) {}
  void begin(const Sequence& sequence) override { tree_->begin(sequence); }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    tree_->draft(sequences, drafts);
    if (drafts[0]->tree.drafted() > 1) drafts[0]->q_of[2] = drafts[0]->q_of[1];
  }

 private:
  std::unique_ptr<Strategy> tree_;
};

TEST_F(Markov, WrongDraftersAreSeen) {
  const auto expected = chain_law(target, {.temperature = 1, .top_k = 0, .top_p = 1}, 1, 4);
  const StrategyEntry wrong =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<WrongQ>(resources);
      });
  const StrategyEntry discards =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<Discards>(resources);
      });
  EXPECT_GT(enumerate::total_variation(
                run({"wrong q", StrategyChoice(wrong)}, "rejection", json::object(), 4).mass, expected),
            1e-2);
  EXPECT_GT(enumerate::total_variation(
                run({"discards", StrategyChoice(discards)}, "rejection", json::object(), 4).mass, expected),
            1e-3);
  const StrategyEntry replaced =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<AsIfWithReplacement>(resources);
      });
  EXPECT_GT(
      enumerate::total_variation(
          run({"as if with replacement", StrategyChoice(replaced)}, "rejection", json::object(), 4).mass,
          expected),
      1e-3);
}

}  // namespace
}  // namespace speclab::markov_test
