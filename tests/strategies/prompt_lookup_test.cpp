#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/error_text.h"
#include "tests/strategies/step_by_step.h"

namespace speclab::prompt_lookup_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The chain that the strategy copies after a text.
std::vector<Token> copied(const std::vector<Token>& text, const json& options, int depth_limit = 100,
                          std::size_t emitted = 1) {
  StepByStep steps("prompt_lookup", options);
  steps.sequence.depth_limit = depth_limit;
  steps.begin(text, emitted);
  std::vector<Token> out;
  for (const auto& [parent, token] : steps.nodes()) {
    EXPECT_EQ(parent, static_cast<int>(out.size()));
    out.push_back(token);
  }
  EXPECT_EQ(steps.draft().source, out.empty() ? "" : "lookup");
  return out;
}

std::vector<TreeNode> copied_tree(const std::vector<Token>& text, const json& options) {
  StepByStep steps("prompt_lookup", options);
  steps.begin(text);
  return steps.nodes();
}

TEST(PromptLookup, CopiesWhatFollowedTheLongestSuffix) {
  const std::vector<Token> text{1, 2, 3, 9, 8, 2, 3, 7, 5, 1, 2, 3};
  EXPECT_THAT(copied(text, {{"length", 2}}), ElementsAre(9, 8));                    // 1 2 3
  EXPECT_THAT(copied(text, {{"length", 2}, {"ngram_max", 2}}), ElementsAre(9, 8));  // 2 3, leftmost
  EXPECT_THAT(copied(text, {{"length", 2}, {"ngram_max", 2}, {"match", "latest"}}), ElementsAre(7, 5));
  EXPECT_THAT(copied(text, {{"length", 2}, {"ngram_max", 5}, {"match", "latest"}}), ElementsAre(9, 8));
}

TEST(PromptLookup, ShorterSuffixesDownToTheSmallest) {
  const std::vector<Token> text{4, 3, 9, 8, 1, 2, 3};
  EXPECT_THAT(copied(text, {{"length", 3}}), ElementsAre(9, 8, 1));
  EXPECT_THAT(copied(text, {{"length", 3}, {"ngram_min", 2}}), ElementsAre());
}

TEST(PromptLookup, TheEndOfTheTextAndTheLimitShortenACopy) {
  EXPECT_THAT(copied({7, 5, 7}, {{"length", 10}}), ElementsAre(5, 7));
  EXPECT_THAT(copied({7, 5, 6, 4, 7}, {{"length", 10}}, 2), ElementsAre(5, 6));
  EXPECT_THAT(copied({7, 5, 6, 4, 7}, {{"length", 10}}, 0), ElementsAre());
  EXPECT_THAT(copied({7, 7}, {{"length", 10}}), ElementsAre(7));
  EXPECT_THAT(copied({7}, {{"length", 10}}), ElementsAre());
  EXPECT_THAT(copied({1, 2, 3}, {{"length", 10}}), ElementsAre());
}

TEST(PromptLookup, CopiesNoMoreThanHasMatched) {
  const std::vector<Token> text = {4, 1, 2, 3, 9, 8, 7, 6, 5, 1, 2, 3};  // 1 2 3 matched, 4 and 5 differ
  EXPECT_THAT(copied(text, {{"length", 6}, {"by_match", true}}), ElementsAre(9, 8, 7));
  EXPECT_THAT(copied(text, {{"length", 2}, {"by_match", true}}), ElementsAre(9, 8));
  EXPECT_THAT(copied(text, {{"length", 6}, {"by_match", true}, {"ngram_max", 2}}), ElementsAre(9, 8, 7))
      << "the match is longer than what was searched for";
  EXPECT_THAT(copied(text, {{"length", 6}}), ElementsAre(9, 8, 7, 6, 5, 1));
  EXPECT_THAT(copied({7, 5, 7}, {{"length", 10}, {"by_match", true}}), ElementsAre(5));
  EXPECT_THAT(copied({7, 7, 7, 7}, {{"length", 10}, {"by_match", true}, {"match", "latest"}}),
              ElementsAre(7));
}

TEST(PromptLookup, AnEndingOfTheOutputInThePromptAloneIsLlma) {
  const auto llma = [](const std::vector<Token>& prompt, const std::vector<Token>& output, json options) {
    std::vector<Token> text = prompt;
    text.insert(text.end(), output.begin(), output.end());
    options["reference"] = "prompt";
    return copied(text, options, 100, output.size());
  };
  const std::vector<Token> prompt{4, 1, 2, 3, 9, 8, 2, 3, 7, 5};
  EXPECT_THAT(llma(prompt, {6, 2, 3}, {{"length", 2}}), ElementsAre(9, 8));
  EXPECT_THAT(llma(prompt, {1, 6, 2, 3, 6, 2, 3}, {{"length", 3}, {"ngram_max", 5}}), ElementsAre(9, 8, 2))
      << "3 6 2 3 is no ending in the prompt, whatever the output holds";
  EXPECT_THAT(llma(prompt, {7}, {{"length", 9}}), ElementsAre(5)) << "a copy ends with the prompt";
  EXPECT_THAT(llma(prompt, {5}, {{"length", 9}}), ElementsAre()) << "nothing follows it there";
  EXPECT_THAT(llma(prompt, {3}, {{"length", 1}, {"match", "latest"}}), ElementsAre(7));
  EXPECT_THAT(llma(prompt, {3}, {{"ngram_min", 2}, {"ngram_max", 2}}), ElementsAre())
      << "one emitted token triggers nothing";
  EXPECT_THAT(llma({8, 2, 6, 8, 2}, {8, 2}, {{"length", 2}, {"ngram_max", 5}}), ElementsAre(6, 8))
      << "2 8 2 would begin in the prompt";
  EXPECT_THAT(llma({8}, {8, 8}, json::object()), ElementsAre());
  EXPECT_THAT(llma({2, 3, 6, 3}, {3, 3, 3, 3}, json::object()), ElementsAre(6, 3));
}

TEST(PromptLookup, TheMostFrequentContinuation) {
  const std::vector<Token> text{2, 9, 1, 2, 7, 4, 2, 9, 3, 2, 8, 6, 2};
  EXPECT_THAT(copied(text, {{"length", 2}, {"match", "frequent"}}), ElementsAre(9, 3));  // the latest 9
  EXPECT_THAT(copied(text, {{"length", 2}, {"match", "latest"}}), ElementsAre(8, 6));
  EXPECT_THAT(copied(text, {{"length", 2}}), ElementsAre(9, 1));
  EXPECT_THAT(copied(std::vector<Token>(200, 5), {{"match", "frequent"}, {"length", 1}}), ElementsAre(5));
}

TEST(PromptLookup, SeveralContinuationsAsATree) {
  const std::vector<Token> text{2, 9, 1, 2, 7, 4, 2, 9, 3, 2, 9, 1, 2};
  EXPECT_THAT(copied_tree(text, {{"length", 2}, {"ngram_max", 1}, {"candidates", 2}}),
              ElementsAre(TreeNode{0, 9}, TreeNode{1, 1}, TreeNode{0, 7}, TreeNode{3, 4}));
  EXPECT_THAT(copied_tree(text, {{"length", 2}, {"ngram_max", 1}, {"candidates", 9}, {"match", "frequent"}}),
              ElementsAre(TreeNode{0, 9}, TreeNode{1, 1}, TreeNode{1, 3}, TreeNode{0, 7}, TreeNode{4, 4}));
  EXPECT_THAT(copied_tree(text, {{"length", 2}, {"ngram_max", 1}, {"candidates", 2}, {"match", "latest"}}),
              ElementsAre(TreeNode{0, 9}, TreeNode{1, 1}, TreeNode{1, 3}));
  EXPECT_LE(copied_tree(std::vector<Token>(200, 5), {{"candidates", 16}}).size(), 10u);
}

class PromptLookupRun : public ::testing::Test {
 protected:
  ModelPtr target = tiny_target(3);
  Decode decode{.target = target, .draft = Model::with_layers(target, {0}), .options = {{"max_tokens", 150}}};
  void SetUp() override { plain = decode.run(); }
  GenerationRecord plain;
};

TEST_F(PromptLookupRun, TheDraftModelFillsTheGaps) {
  decode.strategy =
      choose("prompt_lookup", {{"fallback", "draft"}, {"ngram_min", 2}, {"gamma", 3}, {"length", 5}});
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  int copies = 0, drafts = 0;
  for (const StepRecord& step : record.steps) {
    if (step.drafted.empty()) continue;
    copies += step.source == "lookup" ? 1 : 0;
    drafts += step.source == "draft" ? 1 : 0;
    EXPECT_EQ(step.draft_calls > 0, step.source == "draft");
    EXPECT_LE(step.drafted.size(), step.source == "draft" ? 3u : 5u);
  }
  EXPECT_GT(copies, 0);
  EXPECT_GT(drafts, 0);
  EXPECT_EQ(static_cast<int>(record.steps.size()) - (record.steps.back().drafted.empty() ? 1 : 0),
            copies + drafts);
}

TEST_F(PromptLookupRun, ManyCandidates) {
  for (const json& options : {json{{"candidates", 4}, {"length", 3}, {"match", "frequent"}},
                              json{{"candidates", 3}, {"fallback", "draft"}, {"merge", "tree"}, {"gamma", 2}},
                              json{{"candidates", 3}, {"reference", "prompt"}, {"ngram_max", 5}}}) {
    decode.strategy = choose("prompt_lookup", options);
    const GenerationRecord record = decode.run();
    EXPECT_EQ(record.tokens, plain.tokens);
    EXPECT_EQ(record.row_hashes, plain.row_hashes);
  }
}

TEST_F(PromptLookupRun, BothAsOneTree) {
  decode.strategy =
      choose("prompt_lookup", {{"fallback", "draft"}, {"merge", "tree"}, {"gamma", 3}, {"length", 5}});
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  int trees = 0, won_by_copy = 0;
  for (const StepRecord& step : record.steps) {
    bool fork = false;
    for (std::size_t i = 0; i < step.drafted.size(); ++i) {
      fork = fork || step.drafted[i].parent != static_cast<int>(i);
      for (std::size_t j = 0; j < i; ++j) {  // no two children of one node are the same token
        EXPECT_FALSE(step.drafted[i].parent == step.drafted[j].parent &&
                     step.drafted[i].id == step.drafted[j].id);
      }
      won_by_copy += i >= 3 && step.drafted[i].accepted ? 1 : 0;
    }
    if (fork) {
      ++trees;
      EXPECT_EQ(step.source, "draft+lookup");
    }
  }
  EXPECT_GT(trees, 0);
  EXPECT_GT(won_by_copy, 0);
}

TEST_F(PromptLookupRun, ContradictingOptionsAreRefused) {
  const auto error = [&](const json& options, bool with_draft = true) {
    Resources resources;
    resources.target = target;
    if (with_draft) resources.draft = decode.draft;
    return message_of([&] { choose("prompt_lookup", options).make(resources); });
  };
  EXPECT_THAT(error({{"ngram_min", 4}}), HasSubstr("at most ngram_max = 3"));
  EXPECT_THAT(error({{"fallback", "draft"}}, false), HasSubstr("no draft model"));
  EXPECT_THAT(error({{"merge", "tree"}}), HasSubstr("fallback"));
  EXPECT_EQ(error({{"fallback", "draft"}}), "no error");
}

}  // namespace
}  // namespace speclab::prompt_lookup_test
