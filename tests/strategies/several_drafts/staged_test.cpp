#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/error_text.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::staged_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

struct StagedModels {
  ModelPtr target, two, one;
  StagedModels() {
    Shape shape = tiny_shape();
    shape.layers = 3;
    target = load_tiny(random_llama(shape, 3));
    two = Model::with_layers(target, {0, 1});
    one = Model::with_layers(target, {0});
  }
};

Decode decode(const StagedModels& models, std::vector<ModelPtr> drafts, const StrategyChoice& strategy,
              const json& options) {
  Decode out{.target = models.target,
             .strategy = strategy,
             .options = {{"max_tokens", 50}},
             .prompt = {3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5}};
  out.options.update(options);
  out.drafts = std::move(drafts);
  return out;
}

void expect_equal_drafts(const GenerationRecord& a, const GenerationRecord& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.row_hashes, b.row_hashes);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    ASSERT_EQ(a.steps[i].drafted.size(), b.steps[i].drafted.size());
    for (std::size_t j = 0; j < a.steps[i].drafted.size(); ++j) {
      const DraftedToken &x = a.steps[i].drafted[j], &y = b.steps[i].drafted[j];
      EXPECT_EQ(x.id, y.id);
      EXPECT_EQ(x.parent, y.parent);
      EXPECT_EQ(x.q, y.q);
      EXPECT_EQ(x.confidence, y.confidence);
      EXPECT_EQ(x.expected, y.expected);
      EXPECT_EQ(x.accepted, y.accepted);
    }
  }
}

// The second stage changes which rows are computed together, and nothing else: the drafts, their q and the
// text are those of the same tree without it, bit for bit, at every temperature.
TEST(Staged, DraftsAreThoseWithoutTheSecondStage) {
  const StagedModels models;
  int saved = 0;
  for (const json& options :
       {json{{"temperature", 0}}, json{{"temperature", 1}}, json{{"temperature", .3}, {"top_k", 5}},
        json{{"temperature", 1}, {"coins", "gumbel"}},
        json{{"temperature", 0}, {"repetition_penalty", 1.3}}}) {
    for (const std::vector<int>& widths :
         {std::vector<int>{1, 1, 1, 1, 1}, std::vector<int>{3, 1, 1, 1}, std::vector<int>{2, 2, 1}}) {
      for (const char* children : {"without_replacement", "independent", "best"}) {
        SCOPED_TRACE(options.dump() + json(widths).dump() + children);
        const json tree = {{"widths", widths}, {"children", children}};
        const GenerationRecord plain =
            decode(models, {models.two}, choose("tree_speculation", tree), options).run();
        json staged = tree;
        staged["branches"] = 3;
        for (const int ahead : {0, 1, 4}) {
          staged["ahead"] = ahead;
          staged["known"] = 0;
          const GenerationRecord by_text =
              decode(models, {models.two}, choose("staged", staged), options).run();
          const GenerationRecord by_model =
              decode(models, {models.two, models.one}, choose("staged", staged), options).run();
          expect_equal_drafts(by_text, plain);
          expect_equal_drafts(by_model, plain);
          EXPECT_LE(by_text.draft.calls, plain.draft.calls);
          EXPECT_LE(by_model.drafts[0].calls, plain.draft.calls);
          if (ahead == 0) {
            EXPECT_EQ(by_text.draft.calls, plain.draft.calls);
          } else {
            saved += by_model.drafts[0].calls < plain.draft.calls;
            saved += by_text.draft.calls < plain.draft.calls;
          }
        }
      }
    }
  }
  EXPECT_GT(saved, 20);
}

// A second stage that always guesses right: one forward of the draft for each step.
TEST(Staged, RightGuessesMakeOneForwardOfAChain) {
  const StagedModels models;
  const GenerationRecord record =
      decode(models, {models.two, models.two}, choose("staged", {{"widths", {1, 1, 1, 1}}, {"ahead", 3}}),
             {{"temperature", 0}})
          .run();
  std::int64_t drafting = 0;
  for (const StepRecord& step : record.steps) drafting += !step.drafted.empty();
  EXPECT_GT(drafting, 5);
  EXPECT_EQ(record.drafts[0].calls, drafting);
}

TEST(Staged, RefusesWhatItCannotDraft) {
  const StagedModels models;
  const auto message = [&](const json& options, std::vector<ModelPtr> drafts) {
    return message_of(
        [&] { decode(models, std::move(drafts), choose("staged", options), json::object()).run(); });
  };
  EXPECT_THAT(message({{"widths", {20, 1, 1, 1, 1}}}, {models.one}), HasSubstr("nodes with children"));
  EXPECT_THAT(message(json::object(), {models.one, models.one, models.one}), HasSubstr("at most 2"));
  EXPECT_THAT(message(json::object(), {}), HasSubstr("no draft model"));
}

}  // namespace
}  // namespace speclab::staged_test
