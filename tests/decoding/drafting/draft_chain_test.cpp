#include "core/decoding/drafting/draft_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/decoding/budget/step_costs.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::draft_chain_test {
namespace {

using namespace speclab::fixtures;

// Drafts from the model but replaces one token of some drafts by a wrong one. So there are rejections at
// every depth, between unchanged drafts.
class Spoiled final : public Strategy {
 public:
  explicit Spoiled(const Resources& resources) : chain_({.gamma = 4, .schedule = {}}, resources) {}
  void begin(const Sequence& sequence) override { chain_.begin(sequence); }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    const int spoiled = ++step_ % 2 == 0 ? 1 + step_ / 2 % 4 : 0;
    if (spoiled == 0) return chain_.draft(sequences, drafts);
    chain_.draft(sequences, drafts, [&](const Sequence& sequence, int depth) {
      const auto at = static_cast<std::size_t>(sequence.position() + depth - sequence.prompt_length);
      const Token right = at < sequence.reference.size() ? sequence.reference[at] : 0;
      return depth == spoiled ? (right + 1) % 64 : right;
    });
  }

 private:
  DraftChain chain_;
  int step_ = 0;
};

TEST(DraftChain, TheTargetAsItsOwnDraftIsAlwaysAccepted) {
  const ModelPtr target = tiny_target();
  for (const json& options :
       {json{{"temperature", 0}}, json{{"temperature", 1}},
        json{{"temperature", .7}, {"top_k", 9}, {"top_p", .9}}, json{{"temperature", 1}, {"coins", "gumbel"}},
        json{{"temperature", 1}, {"repetition_penalty", 1.5}}}) {
    for (const int gamma : {1, 2, 5, 8}) {
      json all = options;
      all["max_tokens"] = 60;
      const GenerationRecord record = Decode{.target = target,
                                             .draft = target,
                                             .strategy = choose("speculative_sampling", {{"gamma", gamma}}),
                                             .options = all}
                                          .run();
      for (const StepRecord& step : record.steps) {
        EXPECT_EQ(step.accepted, static_cast<int>(step.drafted.size())) << all << gamma;
        for (const DraftedToken& token : step.drafted) EXPECT_NEAR(token.p, token.q, 1e-15);
      }
      // After full acceptance the draft's cache lacks one more token, so gamma + 1 rows are fed, except in
      // the first step. A last step that has only room for the bonus drafts nothing.
      const int full = static_cast<int>(record.steps.size()) - (record.steps.back().drafted.empty() ? 1 : 0);
      EXPECT_EQ(record.draft.rows, drafted(record) + full - 1);
      EXPECT_EQ(record.draft.calls, drafted(record));
    }
  }
}

TEST(DraftChain, TheCacheIsRightAfterRejectionsToo) {
  const ModelPtr target = tiny_target();
  const StrategyEntry entry =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<Spoiled>(resources);
      });
  Decode decode{.target = target, .options = {{"max_tokens", 100}}};
  const GenerationRecord plain = decode.run();
  decode.draft = target;
  decode.reference = plain.tokens;
  decode.strategy = StrategyChoice(entry);
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  int rejections = 0;
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    const StepRecord& step = record.steps[i];
    if (step.ended_by == EndedBy::rejection) ++rejections;
    if (i % 2 == 0) {
      EXPECT_EQ(step.accepted, static_cast<int>(step.drafted.size())) << i;  // an unchanged draft
    }
  }
  EXPECT_GE(rejections, 8);
  // A step after full acceptance feeds one more token. No other token is ever fed twice or left out.
  int rows = drafted(record);
  for (std::size_t i = 0; i + 1 < record.steps.size(); ++i) {
    const bool full = record.steps[i].accepted == static_cast<int>(record.steps[i].drafted.size());
    rows += full && !record.steps[i + 1].drafted.empty() ? 1 : 0;
  }
  EXPECT_EQ(record.draft.rows, rows);
}

// Half of the drafts are a tree: a chain of the model with wrong tokens, and the right tokens beside it. The
// right branch wins, so the cache is full of tokens that are not in the text.
class Beside final : public Strategy {
 public:
  explicit Beside(const Resources& resources) : chain_({.gamma = 4, .schedule = {}}, resources) {}
  void begin(const Sequence& sequence) override { chain_.begin(sequence); }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    if (++step_ % 2 == 0) return chain_.draft(sequences, drafts);
    const auto right = [](const Sequence& sequence, int depth) {
      return sequence
          .reference[static_cast<std::size_t>(sequence.position() + depth - sequence.prompt_length)];
    };
    chain_.draft(sequences, drafts,
                 [&](const Sequence& sequence, int depth) { return (right(sequence, depth) + 1) % 64; });
    const int depth_of_chain = drafts[0]->tree.drafted();
    for (int depth = 1, node = 0; depth <= depth_of_chain; ++depth)
      node = drafts[0]->add(right(*sequences[0], depth), node);
  }

 private:
  DraftChain chain_;
  int step_ = 0;
};

TEST(DraftChain, TheCacheIsRightAfterAnotherBranchWon) {
  const ModelPtr target = tiny_target();
  const StrategyEntry entry =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<Beside>(resources);
      });
  Decode decode{.target = target, .options = {{"max_tokens", 100}}};
  decode.reference = decode.run().tokens;
  decode.draft = target;
  decode.strategy = StrategyChoice(entry);
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, decode.reference);
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    const int whole = static_cast<int>(record.steps[i].drafted.size()) / (i % 2 == 0 ? 2 : 1);
    EXPECT_EQ(record.steps[i].accepted, whole) << i;
  }
}

TEST(DraftChain, DraftsHaveCoinsOfTheirOwn) {
  // If the draft's token were drawn with the target's coin, a draft equal to the target would always match.
  const ModelPtr target = tiny_target();
  const GenerationRecord record =
      Decode{.target = target,
             .draft = target,
             .strategy = choose("speculative_sampling"),
             .options = {{"max_tokens", 60}, {"temperature", 1.5}, {"rule", "sample_match"}}}
          .run();
  EXPECT_LT(total(record, &StepRecord::accepted), drafted(record));
}

TEST(DraftChain, TheRunningProductStartsAgainWithEachDraft) {
  const ModelPtr target = tiny_target();
  const GenerationRecord record = Decode{
      .target = target,
      .draft = target,
      .strategy =
          choose("speculative_sampling", {{"gamma", 4}, {"schedule", "product"}, {"product_threshold", .05}}),
      .options = {{"max_tokens", 80}}}.run();
  std::size_t longest = 0;
  for (std::size_t i = record.steps.size() / 2; i < record.steps.size(); ++i)
    longest = std::max(longest, record.steps[i].drafted.size());
  EXPECT_GT(longest, 1u);
  for (const StepRecord& step : record.steps) {
    double product = 1;
    for (std::size_t i = 0; i + 1 < step.drafted.size(); ++i) product *= step.drafted[i].confidence;
    EXPECT_GE(product, .05 - 1e-6);
  }
}

TEST(DraftChain, AReducedVocabularyIsLossless) {
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  const ModelPtr target = load_tiny(tiny);
  const ModelPtr draft = load_tiny(random_llama(tiny_draft_shape(tiny.config), 2), target);
  Decode decode{.target = target, .options = {{"max_tokens", 40}}};
  const GenerationRecord plain = decode.run();
  decode.draft = draft;
  decode.strategy = choose("speculative_sampling");
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  EXPECT_EQ(record.row_hashes, plain.row_hashes);
  for (const StepRecord& step : record.steps) {
    for (const DraftedToken& token : step.drafted) EXPECT_EQ(token.id % 2, 0);  // the head has even ids only
  }
  // All tokens of the draft are banned: it drafts nothing, and the text continues.
  std::vector<int> even;
  for (int id = 0; id < 64; id += 2) even.push_back(id);
  decode.options["banned_tokens"] = even;
  EXPECT_EQ(drafted(decode.run()), 0);
  EXPECT_EQ(decode.run().tokens.size(), 40u);
}

TEST(DraftChain, OwnTemperatureAndTruncation) {
  const ModelPtr target = tiny_target();
  Decode decode{.target = target,
                .draft = Model::with_layers(target, {0}),
                .options = {{"max_tokens", 40}, {"temperature", 1}}};
  decode.strategy = choose("speculative_sampling", {{"draft_temperature", 0}});
  for (const StepRecord& step : decode.run().steps) {
    for (const DraftedToken& token : step.drafted) {
      EXPECT_EQ(token.q, token.tested ? 1 : -1);  // one-hot, and the rule knows it
    }
  }
  decode.strategy = choose("speculative_sampling", {{"draft_top_k", 2}});
  bool half = false;
  for (const StepRecord& step : decode.run().steps) {
    for (const DraftedToken& token : step.drafted) half = half || (token.tested && token.q < .9);
  }
  EXPECT_TRUE(half);
  EXPECT_EQ(DraftSampling{}.over({.temperature = .5, .top_k = 3, .top_p = .8}), (SamplingParams{.5, 3, .8}));
  DraftSampling own;
  own.temperature = 2;
  own.top_k = 0;
  own.top_p = 1;
  EXPECT_EQ(own.over({.temperature = .5, .top_k = 3, .top_p = .8}), (SamplingParams{2, 0, 1}));
}

TEST(DraftChain, AShorterContextOfTheDraftEndsDraftingOnly) {
  const TinyModel tiny = random_llama(tiny_shape(), 1);
  const ModelPtr target = load_tiny(tiny);
  TinyModel small = tiny;
  small.config.context = 24;
  const ModelPtr draft = load_tiny(small);
  Decode decode{.target = target, .options = {{"max_tokens", 50}}};
  const GenerationRecord plain = decode.run();
  decode.draft = draft;
  decode.strategy = choose("speculative_sampling", {{"gamma", 4}});
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  // Draft and target agree, so no draft is cut until position 24: the prompt and
  // the fed tokens fill 24 positions.
  EXPECT_EQ(record.draft_prefill.rows + record.draft.rows, 24);
  EXPECT_TRUE(record.steps.back().drafted.empty());
  decode.prompt.assign(30, 5);  // longer than the draft's context
  EXPECT_EQ(drafted(decode.run()), 0);
}

TEST(DraftChain, ConfidenceStopsAreSubmittedAndMarked) {
  const ModelPtr target = tiny_target();
  for (const double temperature : {0., 1.}) {
    Decode decode{.target = target,
                  .draft = Model::with_layers(target, {0}),
                  .options = {{"max_tokens", 80}, {"temperature", temperature}}};
    decode.strategy = choose("speculative_sampling",
                             {{"gamma", 8}, {"schedule", "confidence"}, {"confidence_threshold", .5}});
    int early = 0, bonus = 0;
    for (const StepRecord& step : decode.run().steps) {
      for (std::size_t i = 0; i < step.drafted.size(); ++i) {
        const bool last = i + 1 == step.drafted.size();
        if (last) {
          early += step.drafted.size() < 8 && step.drafted[i].confidence < .5f ? 1 : 0;
        } else {
          EXPECT_GE(step.drafted[i].confidence, .5f);
        }
      }
      if (step.ended_by == EndedBy::schedule) ++bonus;
    }
    EXPECT_GT(early, 3) << temperature;
    EXPECT_GT(bonus, 0) << temperature;
  }
}

// The entropy of the row of each token, which is that of a Markov chain after the token before it. At
// temperature 0 it is the entropy at temperature 1.
TEST(DraftChain, EntropyStopsAreSubmittedAndRecorded) {
  constexpr int kTokens = 16;
  const ModelPtr target = random_markov(kTokens, 1, 4), draft = random_markov(kTokens, 2, 4);
  std::vector<double> entropies;
  for (Token token = 0; token < kTokens; ++token) {
    std::vector<float> logits(kTokens);
    draft->open(4)->prefill({&token, 1}, logits.data());
    Distribution row;
    row.assign_logits(logits, {.temperature = 1, .top_k = 0, .top_p = 1}, {}, kTokens);
    entropies.push_back(row.entropy());
  }
  std::vector<double> sorted = entropies;
  std::ranges::sort(sorted);
  const double bar = std::sqrt((sorted[kTokens / 2] + sorted[kTokens / 2 - 1]) / 2);
  for (const double temperature : {0., 1.}) {
    Decode decode{
        .target = target, .draft = draft, .options = {{"max_tokens", 80}, {"temperature", temperature}}};
    decode.strategy =
        choose("speculative_sampling", {{"gamma", 6}, {"schedule", "entropy"}, {"entropy_threshold", bar}});
    const GenerationRecord record = decode.run();
    int stopped = 0, longer = 0;
    std::size_t text = 0;  // place of the pending token
    for (const StepRecord& step : record.steps) {
      Token before = record.tokens[text];
      for (std::size_t i = 0; i < step.drafted.size(); ++i) {
        const DraftedToken& token = step.drafted[i];
        const double entropy = entropies[static_cast<std::size_t>(before)];
        EXPECT_NEAR(token.entropy, entropy, 1e-6);
        EXPECT_GE(token.confidence, 0);
        const bool last = i + 1 == step.drafted.size();
        if (!last) {
          EXPECT_LE(std::sqrt(entropy), bar);
        }
        stopped += last && i + 1 < 6 && std::sqrt(entropy) > bar ? 1 : 0;
        longer += i > 0 ? 1 : 0;
        before = token.id;
      }
      text += static_cast<std::size_t>(step.emitted);
    }
    EXPECT_GT(stopped, 5) << temperature;
    EXPECT_GT(longer, 5) << temperature;
  }
}

TEST(DraftChain, ABanditNeedsTimesOfItsDrafter) {
  const ModelPtr target = tiny_target();
  Decode decode{.target = target, .draft = target, .options = {{"max_tokens", 40}}};
  decode.strategy = choose("speculative_sampling", {{"gamma", 3}, {"schedule", "bandit"}});
  EXPECT_TRUE(decode.strategy.needs_costs());
  EXPECT_THROW(decode.run(), Error);
  decode.loop.costs = std::make_shared<const StepCosts>(StepCosts{.target_ns = {10, 11}});
  EXPECT_THROW(decode.run(), Error);
  decode.loop.costs = std::make_shared<const StepCosts>(StepCosts{.target_ns = {10, 11}, .draft_ns = {1}});
  const GenerationRecord record = decode.run();
  std::vector<std::size_t> lengths;
  for (const StepRecord& step : record.steps) lengths.push_back(step.drafted.size());
  // Each length once, and then the one with the largest reward, because every token is accepted.
  ASSERT_GE(lengths.size(), 5u);
  EXPECT_THAT(std::vector<std::size_t>(lengths.begin(), lengths.begin() + 4),
              ::testing::ElementsAre(1, 2, 3, 3));
}

TEST(DraftChain, HeuristicFollowsAcceptance) {
  const ModelPtr target = tiny_target();
  const GenerationRecord record = Decode{
      .target = target,
      .draft = target,
      .strategy = choose("speculative_sampling", {{"gamma", 2}, {"schedule", "heuristic"}}),
      .options = {{"max_tokens", 60}}}.run();
  std::vector<std::size_t> lengths;
  for (const StepRecord& step : record.steps) lengths.push_back(step.drafted.size());
  ASSERT_GE(lengths.size(), 4u);
  EXPECT_THAT(std::vector<std::size_t>(lengths.begin(), lengths.begin() + 4),
              ::testing::ElementsAre(2, 4, 6, 8));
}

TEST(DraftChain, LongGapsAreCaughtUp) {
  // Prompt lookup drafts for many steps from a text that repeats itself; the model drafts again much later.
  const ModelPtr target = tiny_target();
  std::vector<Token> reference = Decode{.target = target, .options = {{"max_tokens", 120}}}.run().tokens;
  class Rarely final : public Strategy {
   public:
    explicit Rarely(const Resources& resources) : chain_({.gamma = 3, .schedule = {}}, resources) {}
    void begin(const Sequence& sequence) override { chain_.begin(sequence); }
    void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
      if (++step_ % 45 == 0) chain_.draft(sequences, drafts);
    }

   private:
    DraftChain chain_;
    int step_ = 0;
  };
  const StrategyEntry entry =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<Rarely>(resources);
      });
  const GenerationRecord record = Decode{
      .target = target,
      .draft = target,
      .strategy = StrategyChoice(entry),
      .options = {
          {"max_tokens", 120}}}.run();
  EXPECT_EQ(record.tokens, reference);
  EXPECT_EQ(drafted(record), 6);
  EXPECT_EQ(total(record, &StepRecord::accepted), 6);
}

// A model that runs but drafts nothing has no part in the step: each of its first tokens is left out.
TEST(DraftChain, ADraftWithoutTokensHasNoSource) {
  class TooUnsure final : public Strategy {
   public:
    explicit TooUnsure(const Resources& resources) : chain_({.gamma = 3, .schedule = {}}, resources) {
      chain_.leave_out_below(1);
    }
    void begin(const Sequence& sequence) override { chain_.begin(sequence); }
    void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
      chain_.draft(sequences, drafts);
    }

   private:
    DraftChain chain_;
  };
  const StrategyEntry entry =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<TooUnsure>(resources);
      });
  const ModelPtr target = tiny_target();
  const GenerationRecord record = Decode{
      .target = target,
      .draft = target,
      .strategy = StrategyChoice(entry),
      .options = {{"max_tokens", 9}}}.run();
  EXPECT_GT(record.draft.calls, 0);
  EXPECT_EQ(drafted(record), 0);
  for (const StepRecord& step : record.steps) EXPECT_EQ(step.source, "");
}

// The state belongs to the row, and tokens are drawn from the changed row.
TEST(DraftChain, RowsCanBeCorrectedFromTheirStates) {
  class AlwaysSeven final : public Strategy {
   public:
    explicit AlwaysSeven(const Resources& resources) : chain_({.gamma = 3, .schedule = {}}, resources) {
      EXPECT_TRUE(chain_.device_plan({}).has_value());
      chain_.correct_rows([draft = resources.draft](const Sequence&, int depth, std::span<const float> state,
                                                    std::span<float> logits) {
        EXPECT_TRUE(depth >= 1 && depth <= 3) << depth;
        EXPECT_EQ(state.size(), static_cast<std::size_t>(draft->config().hidden));
        std::vector<float> again(logits.size());
        draft->head(state.data(), 1, FinalNorm::kDone, again.data());
        EXPECT_TRUE(std::ranges::equal(logits, again));
        logits[7] = 1000;
      });
      EXPECT_FALSE(chain_.device_plan({}).has_value());
    }
    void begin(const Sequence& sequence) override { chain_.begin(sequence); }
    void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
      chain_.draft(sequences, drafts);
    }

   private:
    DraftChain chain_;
  };
  const StrategyEntry entry =
      local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<AlwaysSeven>(resources);
      });
  Decode decode{.target = tiny_target(), .options = {{"max_tokens", 30}, {"temperature", 1}}};
  decode.draft = Model::with_layers(decode.target, {0});
  decode.strategy = StrategyChoice(entry);
  const GenerationRecord record = decode.run();
  EXPECT_GT(drafted(record), 20);
  for (const StepRecord& step : record.steps) {
    for (const DraftedToken& token : step.drafted) {
      EXPECT_EQ(token.id, 7);
      if (token.tested) {
        EXPECT_EQ(token.q, 1);
      }
    }
  }
}

}  // namespace
}  // namespace speclab::draft_chain_test
