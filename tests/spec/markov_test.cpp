// Exact joint law, end to end: the real loop, strategies and rules on first-order Markov chains, with every
// coin walked both ways. Catches wrong rows, wrong caches and wrong commits, which tests of
// single tokens do not see.
#include <gtest/gtest.h>

#include <cmath>

#include "core/spec/datastore.h"
#include "core/spec/draft_chain.h"
#include "core/spec/ngram_file.h"
#include "tests/spec/enumerate.h"
#include "tests/spec/loop_fixture.h"

namespace speclab {
namespace {

using namespace speclab::fixtures;
using enumerate::Law;

constexpr int kVocab = 3;

// Law of the first `count` tokens after `prompt`, as the product of the chain's rows.
std::map<enumerate::Outcome, double> chain_law(const ModelPtr& model, const SamplingParams& sampling,
                                               Token last, int count, Token eos = -1) {
  std::vector<std::vector<double>> rows(kVocab);
  for (Token token = 0; token < kVocab; ++token) {
    std::vector<float> logits(kVocab);
    const auto session = model->open(4);
    session->prefill({&token, 1}, logits.data());
    Distribution row;
    row.assign_logits(logits, sampling, {}, kVocab);
    row.probabilities(rows[static_cast<std::size_t>(token)]);
  }
  std::map<enumerate::Outcome, double> law{{{}, 1}};
  for (int i = 0; i < count; ++i) {
    std::map<enumerate::Outcome, double> longer;
    for (const auto& [text, mass] : law) {
      if (!text.empty() && text.back() == eos) {
        longer[text] += mass;
        continue;
      }
      for (Token next = 0; next < kVocab; ++next) {
        enumerate::Outcome more = text;
        more.push_back(next);
        const double p =
            rows[static_cast<std::size_t>(text.empty() ? last : text.back())][static_cast<std::size_t>(next)];
        if (p > 0) longer[more] += mass * p;
      }
    }
    law = std::move(longer);
  }
  return law;
}

struct Case {
  std::string name;
  StrategyChoice strategy;
  std::vector<Token> prompt{0, 2, 1};
  bool patient = true;  // classical rejection sampling, which goes round until it accepts, ends within reason
};

std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back({"autoregressive", choose("autoregressive")});
  all.push_back({"speculative gamma 1", choose("speculative_sampling", {{"gamma", 1}})});
  all.push_back({"speculative gamma 2", choose("speculative_sampling", {{"gamma", 2}})});
  all.push_back(
      {"speculative hot draft",
       choose("speculative_sampling", {{"gamma", 2}, {"draft_temperature", 2}, {"draft_top_k", 2}})});
  all.push_back({"speculative confidence",
                 choose("speculative_sampling",
                        {{"gamma", 2}, {"schedule", "confidence"}, {"confidence_threshold", .4}})});
  all.push_back(
      {"speculative product",
       choose("speculative_sampling", {{"gamma", 2}, {"schedule", "product"}, {"product_threshold", .4}})});
  all.push_back(
      {"speculative heuristic", choose("speculative_sampling", {{"gamma", 1}, {"schedule", "heuristic"}})});
  all.push_back({"draft tree", choose("draft_tree", {{"widths", {2, 1}}})});
  all.push_back({"draft tree of all tokens", choose("draft_tree", {{"widths", {3}}})});
  all.push_back({"draft tree, hot, of more tokens than have mass",
                 choose("draft_tree", {{"widths", {2, 2}}, {"draft_temperature", 2}, {"draft_top_k", 1}})});
  all.push_back({"draft tree of the best tokens", choose("draft_tree", {{"widths", {2, 2}}, {"draft_temperature", 0}})});
  all.push_back({"lookup", choose("prompt_lookup", {{"length", 2}}), {0, 1, 2, 0, 1}});
  all.push_back(
      {"lookup, draft where nothing matches",
       choose("prompt_lookup", {{"length", 2}, {"gamma", 2}, {"ngram_min", 2}, {"fallback", "draft"}}),
       {0, 1, 2, 0, 1}});
  all.push_back(
      {"lookup and draft as a tree",
       choose("prompt_lookup", {{"length", 2}, {"gamma", 2}, {"fallback", "draft"}, {"merge", "tree"}}),
       {0, 1, 2, 0, 1}});
  const auto lookahead = [&](json options) {
    options["pool_from_prompt"] = true;
    return choose("lookahead", options);
  };
  all.push_back({"lookahead", lookahead({{"W", 2}, {"N", 3}, {"G", 3}}), {0, 1, 2, 0, 1, 0, 2, 1, 1}});
  all.push_back(
      {"lookahead of bigrams", lookahead({{"W", 3}, {"N", 2}, {"G", -1}}), {0, 1, 2, 0, 1, 0, 2, 1, 1}});
  all.push_back({"lookahead, window accepted",
                 lookahead({{"W", 3}, {"N", 2}, {"G", 2}, {"accept_window", true}}),
                 {0, 1, 2, 0, 1, 0, 2, 1, 1}});
  all.push_back({"jacobi", choose("jacobi", {{"block", 3}})});
  static const TempDir dir;
  const std::string datastore = (dir.path() / "datastore").string();
  Datastore::Builder builder(kVocab, "");
  for (const std::vector<Token>& document :
       std::vector<std::vector<Token>>{{0, 1, 2, 0}, {1, 2, 1}, {0, 1, 0, 2}, {2, 2}})
    builder.add(document);
  builder.write(datastore);
  all.push_back(
      {"retrieved tree",
       choose("retrieval", {{"datastore", datastore}, {"ngram_min", 1}, {"length", 2}, {"nodes", 5}})});
  const std::string ngrams = (dir.path() / "ngrams").string();
  NgramFile::Builder counted(kVocab, "");
  counted.add(std::vector<Token>{0, 1, 2, 0, 1, 1, 2});
  counted.write(ngrams, 3);
  all.push_back({"n-grams of the text, Katz",
                 choose("ngram_model", {{"gamma", 2}, {"smoothing", "katz"}, {"known", 0}}),
                 {0, 1, 2, 0, 1},
                 false});
  all.push_back({"n-grams of the text where known",
                 choose("ngram_model", {{"gamma", 2}, {"smoothing", "kneser_ney"}, {"order", 2}}),
                 {0, 1, 2, 0, 1},
                 false});
  all.push_back({"n-grams of text and file",
                 choose("ngram_model", {{"gamma", 1}, {"counts", "both"}, {"file", ngrams}}),
                 {0, 2, 1},
                 false});
  all.push_back({"suffix tree",
                 choose("suffix_decoding", {{"length", 3}, {"factor", 3}, {"tree", true}}),
                 {0, 1, 2, 0, 1}});
  all.push_back({"copies from the prompt",
                 choose("prompt_lookup", {{"length", 2}, {"reference", "prompt"}}),
                 {0, 1, 2, 0, 1}});
  all.push_back({"recycled tree", choose("token_recycling", {{"k", 2}, {"tree", {2, 1, 1}}})});
  all.push_back({"copies, chain and runners-up as a tree",
                 choose("composition",
                        {{"gamma", 2}, {"worth", .01}, {"worth_of_runner_up", 0}, {"sure", 1}, {"nodes", 9}}),
                 {0, 1, 2, 0, 1}});
  all.push_back({"copies of text and datastore, and a chain, as a tree",
                 choose("composition", {{"gamma", 1},
                                        {"sources", {"text", "datastore", "draft"}},
                                        {"datastore", datastore},
                                        {"worth", .01},
                                        {"worth_of_runner_up", 1},
                                        {"sure", 1},
                                        {"length", 2},
                                        {"nodes", 6}}),
                 {0, 1, 2, 0, 1}});
  all.push_back({"simulated", choose("simulated", {{"gamma", 2}, {"alpha", .6}})});
  return all;
}

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
    DecodeLoop loop(target, draft, c.strategy, {.capacity = 32});
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
    for (const Case& c : cases()) {
      if (least > 0 && !c.patient) continue;
      const int count = least > 0 ? 3 : 4;
      int accepted = 0;
      const Law law = run(c, std::string(rule.name), json::object(), count, -1, least, &accepted);
      const auto shorter =
          count == 4 ? expected : chain_law(target, {.temperature = 1, .top_k = 0, .top_p = 1}, 1, count);
      EXPECT_LT(enumerate::total_variation(law.mass, shorter), 1e-12 + law.pruned)
          << c.name << ", " << rule.name;
      EXPECT_LT(law.pruned, .01);
      // Classical rejection sampling accepts nothing where q misses support of p.
      const bool classical = rule.name.ends_with("iterative");
      if (!classical || c.name == "autoregressive") {
        EXPECT_EQ(accepted > 0, c.name != "autoregressive") << c.name << ", " << rule.name;
      }
    }
  }
}

TEST_F(Markov, TruncatedRowsAndEndTokens) {
  const SamplingParams sampling{.temperature = .8, .top_k = 2, .top_p = .95};
  const json options = {{"temperature", .8}, {"top_k", 2}, {"top_p", .95}};
  const auto expected = chain_law(target, sampling, 1, 4);
  const auto ending = chain_law(target, sampling, 1, 4, 2);
  EXPECT_GT(enumerate::total_variation(expected, ending), .05);
  for (const Case& c : cases()) {
    EXPECT_LT(enumerate::total_variation(run(c, "rejection", options, 4).mass, expected), 1e-12) << c.name;
    EXPECT_LT(enumerate::total_variation(run(c, "rejection", options, 4, 2).mass, ending), 1e-12) << c.name;
  }
}

TEST_F(Markov, ALossyRuleIsSeen) {
  const auto expected = chain_law(target, {.temperature = 1, .top_k = 0, .top_p = 1}, 1, 4);
  for (const Case& c : cases()) {
    const double distance =
        enumerate::total_variation(run(c, "lenience", {{"lenience", .3}}, 4).mass, expected);
    if (c.name == "autoregressive") {
      EXPECT_LT(distance, 1e-12);
    } else {
      EXPECT_GT(distance, 1e-3) << c.name;
    }
  }
}

// Negative controls: a drafter that is wrong in a small way must be noticed by the very comparison that is
// used above.
class WrongQ final
    : public Strategy {  // draws from the draft, but hands over an argmax as if it had been drawn
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

class AsIfWithReplacement final : public Strategy {  // every sibling is handed over with the law of the first
 public:
  explicit AsIfWithReplacement(const Resources& resources)
      : tree_(choose("draft_tree", {{"widths", {2, 1}}}).make(resources)) {}
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
  EXPECT_GT(enumerate::total_variation(
                run({"as if with replacement", StrategyChoice(replaced)}, "rejection", json::object(), 4).mass, expected),
            1e-3);
}

}  // namespace
}  // namespace speclab
