#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "tests/base/error_text.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/strategies/draft_rows.h"

namespace speclab::cascade_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

/// A target of three layers with drafts of two layers and of one.
struct CascadeModels {
  ModelPtr target, two, one;
  CascadeModels() {
    Shape shape = tiny_shape();
    shape.layers = 3;
    target = load_tiny(random_llama(shape, 3));
    two = Model::with_layers(target, {0, 1});
    one = Model::with_layers(target, {0});
  }
};

const std::vector<Token> kPrompt{3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5};

Decode decode(const CascadeModels& models, std::vector<ModelPtr> drafts, const StrategyChoice& strategy,
              json options = json::object()) {
  Decode out{
      .target = models.target, .strategy = strategy, .options = {{"max_tokens", 60}}, .prompt = kPrompt};
  out.options.update(options);
  out.drafts = std::move(drafts);
  return out;
}

/// The copy of a max-gram, found by comparing every ending with every earlier place.
std::vector<Token> copy_by_hand(const std::vector<Token>& text, std::size_t count) {
  for (std::size_t length = text.size() - 1; length > 0; --length) {
    for (std::size_t at = 0; at + length < text.size(); ++at) {
      if (!std::equal(text.begin() + static_cast<std::ptrdiff_t>(at),
                      text.begin() + static_cast<std::ptrdiff_t>(at + length),
                      text.end() - static_cast<std::ptrdiff_t>(length)))
        continue;
      const std::size_t from = at + length, until = std::min(text.size(), from + count);
      return {text.begin() + static_cast<std::ptrdiff_t>(from),
              text.begin() + static_cast<std::ptrdiff_t>(until)};
    }
  }
  return {};
}

/// Calls visit(text before the step, step) for every step.
template <class Visit>
void for_steps(const GenerationRecord& record, const Visit& visit) {
  std::vector<Token> text = kPrompt;
  text.push_back(record.tokens[0]);
  std::size_t emitted = 1;
  for (const StepRecord& step : record.steps) {
    visit(text, step, static_cast<int>(record.tokens.size() - emitted));
    for (int i = 0; i < step.emitted; ++i) text.push_back(record.tokens[emitted++]);
  }
}

// A review without lenience keeps exactly what the reviewing draft would have generated. So the chain
// consists of the greedy tokens of the drafts that hand it to the target, whatever the smaller drafts
// proposed.
TEST(Cascade, TheChainHasTheGreedyTokensOfEachDraftThenCopies) {
  const CascadeModels models;
  const std::vector<int> k = {3, 2, 2, 0, 2, 1, 0, 0, 3};
  const GenerationRecord record =
      decode(models, {models.two, models.one}, choose("cascade", {{"k", k}})).run();
  int copies = 0;
  for_steps(record, [&](std::vector<Token> text, const StepRecord& step, int left) {
    std::vector<Token> expected;
    const auto greedy = [&](const ModelPtr& model, int count) {
      for (int i = 0; i < count; ++i) {
        expected.push_back(order_of(row_after(model, text)).front());
        text.push_back(expected.back());
      }
    };
    if (left <= 8) return;  // the end of the text cuts the chain
    greedy(models.two, 3);
    greedy(models.one, 2);
    for (std::size_t room = 2; room > 0;) {
      const std::vector<Token> copied = copy_by_hand(text, room);
      if (copied.empty()) break;
      room -= copied.size();
      copies += static_cast<int>(copied.size());
      expected.insert(expected.end(), copied.begin(), copied.end());
      text.insert(text.end(), copied.begin(), copied.end());
    }
    std::vector<Token> drafted;
    for (const DraftedToken& token : step.drafted) drafted.push_back(token.id);
    EXPECT_EQ(drafted, expected);
    ASSERT_GE(step.contributions.size(), 2u);
    EXPECT_EQ(step.contributions[0].source, "draft 1");
    EXPECT_EQ(step.contributions[1].source, "draft 2");
    EXPECT_EQ(step.contributions[1].first, 4);
  });
  EXPECT_GT(copies, 5);
}

/// The reviews of a step as a map: reviewer and source -> tested and kept places.
std::map<std::pair<std::string, std::string>, std::pair<int, int>> reviews_of(const StepRecord& step) {
  std::map<std::pair<std::string, std::string>, std::pair<int, int>> out;
  for (const DraftReview& review : step.reviews) {
    const bool is_new =
        out.emplace(std::pair(review.reviewer, review.source), std::pair(review.tested, review.kept)).second;
    EXPECT_TRUE(is_new) << review.reviewer << " " << review.source;
  }
  return out;
}

// The rounds of one draft over copies by hand. A place for which there is no copy counts as not kept.
TEST(Cascade, TheRecordCountsThePlacesThatAReviewKept) {
  const CascadeModels models;
  const GenerationRecord record =
      decode(models, {models.one}, choose("cascade", {{"k", {6, 0, 0, 3}}})).run();
  int all_kept = 0;
  for_steps(record, [&](std::vector<Token> text, const StepRecord& step, int left) {
    if (left <= 7) return;
    int tested = 0, kept = 0;
    for (int made = 0; made < 6;) {
      const int places = std::min(3, 6 - made - 1);
      bool keeps = true;
      for (int place = 0; keeps; ++place, ++made) {
        const std::vector<Token> copied =
            copy_by_hand(text, static_cast<std::size_t>(std::max(0, places - place)));
        const Token best = order_of(row_after(models.one, text)).front();
        keeps = place < places && !copied.empty() && copied.front() == best;
        tested += place < places;
        kept += keeps;
        text.push_back(best);
      }
    }
    const auto found = reviews_of(step);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found.at({"draft 1", "max_gram"}), std::pair(tested, kept));
    EXPECT_EQ(static_cast<int>(step.drafted.size()), step.draft_calls + kept) << "each review adds one token";
    all_kept += kept;
  });
  EXPECT_GT(all_kept, 3);
}

TEST(Cascade, TheRecordNamesReviewersAndSources) {
  const CascadeModels models;
  const GenerationRecord record =
      decode(models, {models.two, models.one}, choose("cascade", {{"k", {3, 2, 2, 0, 2, 1, 0, 0, 3}}})).run();
  std::map<std::pair<std::string, std::string>, std::pair<int, int>> all;
  for (const StepRecord& step : record.steps) {
    for (const auto& [pair, counts] : reviews_of(step)) {
      EXPECT_LE(counts.second, counts.first);
      all[pair].first += counts.first;
    }
  }
  // The first draft makes three tokens at most, so its reviews have two places, both of the second draft.
  EXPECT_EQ(all.size(), 2u);
  EXPECT_TRUE(all.contains({"draft 1", "draft 2"}));
  EXPECT_TRUE(all.contains({"draft 2", "max_gram"}));
  const GenerationRecord plain =
      decode(models, {models.two, models.one}, choose("cascade", {{"k", {3, 2, 0, 0}}, {"max_gram", false}}))
          .run();
  for (const StepRecord& step : plain.steps) EXPECT_TRUE(step.reviews.empty());
}

// The lenient review by hand: a copied token stays if p(x) > 1 / lenience under the draft.
TEST(Cascade, LenienceKeepsTokensThatAreLikelyEnough) {
  const CascadeModels models;
  const double lenience = 30;
  const GenerationRecord record =
      decode(models, {models.one}, choose("cascade", {{"k", {6, 0, 0, 3}}, {"inner_lenience", lenience}}))
          .run();
  int kept_others = 0;
  for_steps(record, [&](std::vector<Token> text, const StepRecord& step, int left) {
    if (left <= 7) return;
    std::vector<Token> expected;
    while (expected.size() < 6) {
      const std::size_t room = 6 - expected.size();
      std::vector<Token> copied;
      std::vector<Token> longer = text;
      while (copied.size() < std::min<std::size_t>(3, room - 1)) {
        const std::vector<Token> more =
            copy_by_hand(longer, std::min<std::size_t>(3, room - 1) - copied.size());
        if (more.empty()) break;
        copied.insert(copied.end(), more.begin(), more.end());
        longer.insert(longer.end(), more.begin(), more.end());
      }
      for (std::size_t i = 0;; ++i) {
        const std::vector<float> row = row_after(models.one, text);
        const Token best = order_of(row).front();
        Distribution p;
        p.assign_logits(row, {.temperature = 1}, {}, 64);
        const bool keeps = i < copied.size() && (copied[i] == best || p.prob(copied[i]) > 1 / lenience);
        kept_others += keeps && copied[i] != best;
        expected.push_back(keeps ? copied[i] : best);
        text.push_back(expected.back());
        if (!keeps) break;
      }
    }
    std::vector<Token> drafted;
    for (const DraftedToken& token : step.drafted) drafted.push_back(token.id);
    EXPECT_EQ(drafted, expected);
  });
  EXPECT_GT(kept_others, 3);
}

TEST(Cascade, ReviewsSaveForwardsOfTheLargerDraft) {
  const CascadeModels models;
  const GenerationRecord cascade =
      decode(models, {models.two, models.one}, choose("cascade", {{"k", {6, 0, 0, 4}}, {"max_gram", false}}))
          .run();
  const GenerationRecord chain =
      decode(models, {models.two}, choose("speculative_sampling", {{"gamma", 6}, {"draft_temperature", 0}}))
          .run();
  EXPECT_EQ(cascade.tokens, chain.tokens);
  EXPECT_EQ(cascade.row_hashes, chain.row_hashes);
  ASSERT_EQ(cascade.steps.size(), chain.steps.size());
  EXPECT_EQ(drafted(cascade), drafted(chain));
  ASSERT_EQ(cascade.drafts.size(), 2u);
  EXPECT_TRUE(chain.drafts.empty());
  EXPECT_LT(cascade.drafts[0].calls, chain.draft.calls);
  EXPECT_GT(cascade.drafts[1].calls, 0);
  EXPECT_EQ(cascade.drafts[0].calls + cascade.drafts[1].calls, cascade.draft.calls);
  EXPECT_EQ(cascade.drafts[0].rows + cascade.drafts[1].rows, cascade.draft.rows);
}

TEST(Cascade, TextIsTheTargetsOwn) {
  const CascadeModels models;
  for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 0}, {"repetition_penalty", 1.3}},
                              json{{"temperature", 1}, {"coins", "gumbel"}}}) {
    const GenerationRecord plain = decode(models, {}, choose("autoregressive"), options).run();
    for (const json& strategy :
         {json{{"k", {4, 2, 3, 0, 3, 2, 0, 0, 4}}}, json{{"k", {0, 5, 0, 3}}, {"max_gram", false}},
          json{{"k", {2, 2, 2, 0, 1, 5, 0, 0, 5}}, {"inner_lenience", 4}}}) {
      const GenerationRecord record =
          decode(models, {models.two, models.one}, choose("cascade", strategy), options).run();
      EXPECT_EQ(record.tokens, plain.tokens) << strategy << options;
      EXPECT_GT(total(record, &StepRecord::accepted), 0) << strategy << options;
    }
  }
}

TEST(Cascade, ShortContextsOfADraft) {
  const CascadeModels models;
  Shape shape = tiny_shape();
  shape.context = 40;
  const ModelPtr brief = load_tiny(random_llama(shape, 5));
  const GenerationRecord plain = decode(models, {}, choose("autoregressive")).run();
  const GenerationRecord record =
      decode(models, {models.two, brief}, choose("cascade", {{"k", {3, 2, 2, 0, 2, 1, 0, 0, 3}}})).run();
  EXPECT_EQ(record.tokens, plain.tokens);
  EXPECT_GT(record.drafts[1].calls, 0);
}

TEST(Cascade, RefusesBadMatrices) {
  const CascadeModels models;
  const auto message = [&](const json& options, std::vector<ModelPtr> drafts) {
    return message_of([&] { decode(models, std::move(drafts), choose("cascade", options)).run(); });
  };
  EXPECT_THAT(message({{"k", {3, 2, 1}}}, {models.one}), HasSubstr("2 x 2 = 4 numbers"));
  EXPECT_THAT(message({{"k", {3, 2, 1}}}, {models.one}), HasSubstr("3 numbers"));
  EXPECT_THAT(message({{"k", {3, 2, 1, 2}}}, {models.one}), HasSubstr("row 1, column 0"));
  EXPECT_THAT(message({{"k", {0, 0, 0, 2}}}, {models.one}), HasSubstr("sum of row 0"));
  EXPECT_THAT(message({{"k", {64, 1, 0, 2}}}, {models.one}), HasSubstr("sum of row 0"));
  EXPECT_THAT(message(json::object(), {models.one, models.one, models.one, models.one}),
              HasSubstr("at most 3"));
  Shape shape = tiny_shape();
  shape.vocab = 48;
  const ModelPtr other = load_tiny(random_llama(shape, 5));
  EXPECT_THAT(message(json::object(), {models.one, other}), HasSubstr("a vocabulary of 48 tokens"));
  EXPECT_THAT(
      message_of([&] { decode(models, {models.two, models.one}, choose("speculative_sampling")).run(); }),
      HasSubstr("2 draft models"));
}

}  // namespace
}  // namespace speclab::cascade_test
