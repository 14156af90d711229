#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "core/decoding/drafting/ngrams/ngram_estimate.h"
#include "core/decoding/rows/processors.h"
#include "tests/base/error_text.h"
#include "tests/strategies/step_by_step.h"

namespace speclab::ngram_model_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NgramModelTest : public ::testing::Test {
 protected:
  std::string write(const std::vector<std::vector<Token>>& documents, int order = 3,
                    const std::string& name = "ngrams") {
    NgramFile::Builder builder(vocab, target->tokenizer_sha256());
    for (const auto& document : documents) builder.add(document);
    const std::string path = (dir_.path() / name).string();
    builder.write(path, order);
    return path;
  }
  /// The draft after a text; `sequence` has the sampling parameters.
  Draft drafted_after(const std::vector<Token>& text, const json& options, const Sequence& sequence = {}) {
    StepByStep steps("ngram_model", options, target);
    steps.sequence = sequence;
    steps.sequence.depth_limit = 100;
    steps.begin(text);
    const Draft draft = steps.draft();
    EXPECT_TRUE(draft.tree.is_chain());
    EXPECT_EQ(draft.source, draft.tree.drafted() > 0 ? "ngram" : "");
    return draft;
  }
  std::vector<Token> tokens_after(const std::vector<Token>& text, const json& options) {
    const Draft draft = drafted_after(text, options);
    return {draft.tree.tokens().begin() + 1, draft.tree.tokens().end()};
  }
  std::string error_of(const json& options) {
    return message_of([&] { drafted_after({1, 2}, options); });
  }

  TempDir dir_;
  ModelPtr target = tiny_target(3);
  int vocab = target->config().vocab;
};

TEST_F(NgramModelTest, TheMostProbableTokenAfterTheLongestKnownContext) {
  const std::vector<Token> text{1, 2, 3, 1, 2, 3, 1, 2, 4, 5, 2, 4, 2, 4, 1, 2};
  for (const char* smoothing : {"katz", "kneser_ney", "modified_kneser_ney"}) {
    EXPECT_THAT(tokens_after(text, {{"smoothing", smoothing}}), ElementsAre(3, 1, 2)) << smoothing;
    EXPECT_THAT(tokens_after(text, {{"smoothing", smoothing}, {"order", 2}, {"gamma", 1}}), ElementsAre(4))
        << smoothing;
    EXPECT_THAT(tokens_after(text, {{"smoothing", smoothing}, {"order", 1}, {"gamma", 2}}), ElementsAre(2, 2))
        << smoothing;
  }
  EXPECT_THAT(tokens_after({1, 2, 3}, json::object()), IsEmpty()) << "3 is new";
  EXPECT_EQ(tokens_after({1, 2, 3}, {{"known", 0}}).size(), 3u);
  EXPECT_THAT(tokens_after({1, 2, 3, 1, 5, 2}, {{"known", 2}}), IsEmpty())
      << "5 2 was never followed by anything";
  EXPECT_EQ(tokens_after({1, 2, 3, 1, 2}, {{"known", 2}}).size(), 3u);
}

TEST_F(NgramModelTest, CountsOfTheTextOrOfAFile) {
  const std::string path = write({{1, 2, 7, 1, 2, 7}, {9, 1, 2, 7, 8}});
  const std::vector<Token> text{2, 3, 6, 2};
  EXPECT_THAT(tokens_after({5, 1, 2}, {{"counts", "file"}, {"file", path}}), ElementsAre(7, 1, 2));
  EXPECT_THAT(tokens_after(text, {{"counts", "file"}, {"file", path}, {"gamma", 1}}), ElementsAre(7));
  EXPECT_THAT(tokens_after(text, {{"counts", "both"}, {"file", path}, {"gamma", 1}}), ElementsAre(3))
      << "both know 2 alone: the text itself";
  EXPECT_THAT(tokens_after({2, 3, 1, 2}, {{"counts", "both"}, {"file", path}, {"gamma", 1}}), ElementsAre(7))
      << "the file knows 1 2";
  EXPECT_THAT(tokens_after({2, 3, 1, 2}, {{"counts", "online"}, {"gamma", 1}}), ElementsAre(3));
  EXPECT_EQ(
      tokens_after({5, 1, 2}, {{"counts", "file"}, {"file", write({{1}}, 3, "short")}, {"known", 0}}).size(),
      3u);
}

// q is the complete law and sums to one. The token was drawn from it: the
// same coin picks the same token again.
TEST_F(NgramModelTest, HandsOverTheLawThatATokenWasDrawnFrom) {
  const std::vector<Token> text{1, 2, 3, 1, 2, 3, 1, 2, 4, 5, 2, 4, 2, 4, 1, 2};
  for (const char* smoothing : {"katz", "kneser_ney", "modified_kneser_ney"}) {
    NgramCounts counts(vocab, 3);
    for (const Token token : text) counts.append(token);
    NgramEstimate<NgramCounts> law(vocab, 3,
                                   std::string(smoothing) == "katz" ? NgramSmoothing::katz
                                   : std::string(smoothing) == "kneser_ney"
                                       ? NgramSmoothing::kneser_ney
                                       : NgramSmoothing::modified_kneser_ney);
    std::set<Token> drawn;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Sequence sequence;
      sequence.sampling = {.temperature = 1, .top_k = 0, .top_p = 1};
      sequence.coins = Coins(seed, 1);
      const Draft draft = drafted_after(text, {{"smoothing", smoothing}, {"known", 0}}, sequence);
      ASSERT_EQ(draft.tree.drafted(), 3);
      std::vector<Token> context = text;
      for (int node = 1; node <= 3; ++node) {
        const Distribution* q = draft.q_at(node);
        ASSERT_NE(q, nullptr);
        std::vector<double> row, expected(static_cast<std::size_t>(vocab));
        q->probabilities(row);
        EXPECT_NEAR(std::accumulate(row.begin(), row.end(), 0.0), 1, 1e-12);
        law.condition(counts, context);
        law.probabilities(expected);
        for (std::size_t x = 0; x < row.size(); ++x) ASSERT_NEAR(row[x], expected[x], 2e-6);
        const Coins::Address coin{static_cast<std::int64_t>(text.size()) - 1, Purpose::draft,
                                  static_cast<std::uint32_t>(node)};
        EXPECT_EQ(q->sample(sequence.coins, coin), draft.tree.token(node));
        context.push_back(draft.tree.token(node));
        drawn.insert(context.back());
      }
    }
    EXPECT_GT(drawn.size(), 5u);
  }
}

TEST_F(NgramModelTest, TemperatureAndProcessorsBelongToTheLaw) {
  const std::vector<Token> text{1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2};
  Sequence sequence;
  sequence.sampling = {.temperature = .5, .top_k = 2, .top_p = 1};
  const Draft draft = drafted_after(text, {{"gamma", 1}}, sequence);
  NgramCounts counts(vocab, 3);
  for (const Token token : text) counts.append(token);
  NgramEstimate<NgramCounts> law(vocab, 3, NgramSmoothing::modified_kneser_ney);
  law.condition(counts, text);
  const double a = law.prob(3) * law.prob(3), b = law.prob(4) * law.prob(4);
  ASSERT_NE(draft.q_at(1), nullptr);
  EXPECT_NEAR(draft.q_at(1)->prob(3), a / (a + b), 1e-5);
  EXPECT_NEAR(draft.q_at(1)->prob(4), b / (a + b), 1e-5);
  EXPECT_NEAR(drafted_after(text, {{"gamma", 1}, {"draft_temperature", 1}}, sequence).q_at(1)->prob(3),
              law.prob(3) / (law.prob(3) + law.prob(4)), 1e-5);
  const LogitsProcessors banned({.repetition_penalty = 1, .min_length = 0, .banned = {3}, .eos = {}}, 4);
  Sequence greedy;
  greedy.processors = &banned;
  const Draft without = drafted_after(text, {{"gamma", 1}}, greedy);
  EXPECT_EQ(without.tree.token(1), 4);
  // All tokens that Katz has seen after these are banned, and the others may have no mass.
  std::vector<Token> all(static_cast<std::size_t>(vocab));
  std::iota(all.begin(), all.end(), 0);
  const LogitsProcessors everything({.repetition_penalty = 1, .min_length = 0, .banned = all, .eos = {}}, 4);
  greedy.processors = &everything;
  EXPECT_EQ(drafted_after(text, json::object(), greedy).tree.drafted(), 0);
}

TEST_F(NgramModelTest, SchedulesStopADraft) {
  const std::vector<Token> text{1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2};
  const Draft draft = drafted_after(text, {{"gamma", 9}, {"schedule", "product"}, {"product_threshold", .6}});
  EXPECT_EQ(draft.tree.drafted(), 1) << "3 followed 1 2 twice, 4 once";
  EXPECT_TRUE(draft.ended_by_schedule);
  EXPECT_GT(draft.confidence[1], .4);
  EXPECT_LT(draft.confidence[1], .6);
  EXPECT_EQ(drafted_after(text, {{"gamma", 9}}).tree.drafted(), 9);
}

TEST_F(NgramModelTest, TheEntropyIsThatOfTheLaw) {
  const std::vector<Token> text{1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2};
  // The first drawn token may be one that did not occur. With "known": 0 the draft goes on after it.
  const json options = {{"gamma", 2}, {"schedule", "entropy"}, {"entropy_threshold", 10}, {"known", 0}};
  Sequence sampled;
  sampled.sampling = {.temperature = 1, .top_k = 0, .top_p = 1};
  const Draft draft = drafted_after(text, options, sampled);
  ASSERT_EQ(draft.tree.drafted(), 2);
  EXPECT_NEAR(draft.entropy[1], draft.q_at(1)->entropy(), 1e-6);
  EXPECT_NEAR(draft.entropy[2], draft.q_at(2)->entropy(), 1e-6);
  const Draft greedy = drafted_after(text, options);
  EXPECT_NEAR(greedy.entropy[1], draft.entropy[1], 1e-5) << "the same context, and the law at temperature 1";
  EXPECT_EQ(drafted_after(text, {{"gamma", 2}}).entropy[1], -1);
  EXPECT_EQ(
      drafted_after(text, {{"gamma", 9}, {"schedule", "entropy"}, {"entropy_threshold", .1}}).tree.drafted(),
      1);
}

TEST_F(NgramModelTest, ForeignAndMissingFilesAreRefused) {
  EXPECT_THAT(error_of({{"counts", "file"}}), HasSubstr("speclab ngram build"));
  EXPECT_THAT(error_of({{"counts", "both"}, {"file", (dir_.path() / "nowhere").string()}}),
              HasSubstr("nowhere"));
  NgramFile::Builder builder(vocab, std::string(64, '0'));
  builder.add(std::vector<Token>{1, 2});
  builder.write(dir_.path() / "foreign", 2);
  EXPECT_THAT(error_of({{"counts", "file"}, {"file", (dir_.path() / "foreign").string()}}),
              HasSubstr("another tokenizer"));
  EXPECT_EQ(error_of({{"counts", "file"}, {"file", write({{1, 2}})}}), "no error");
}

TEST_F(NgramModelTest, GreedyTextIsThatOfAutoregressiveDecoding) {
  Decode decode{.target = target, .options = {{"max_tokens", 150}}};
  const GenerationRecord plain = decode.run();
  std::vector<Token> text = decode.prompt;
  text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
  const std::string path = write({text, {4, 5, 6}});
  for (const json& options :
       {json{{"order", 2}}, json{{"smoothing", "katz"}, {"gamma", 5}},
        json{{"counts", "file"}, {"file", path}},
        json{{"counts", "both"}, {"file", path}, {"smoothing", "kneser_ney"}, {"order", 6}},
        json{{"order", 1}, {"gamma", 1}}, json{{"schedule", "heuristic"}, {"known", 2}}}) {
    decode.strategy = choose("ngram_model", options);
    const GenerationRecord record = decode.run();
    EXPECT_EQ(record.tokens, plain.tokens) << options;
    EXPECT_EQ(record.row_hashes, plain.row_hashes) << options;
    EXPECT_GT(drafted(record), 20) << options;
    if (options.value("order", 3) > 1) {
      EXPECT_LT(record.steps.size(), plain.steps.size()) << options;
    }
    if (options.value("counts", "") == "file") {
      EXPECT_LT(record.steps.size(), plain.steps.size() / 2);
    }
  }
}

}  // namespace
}  // namespace speclab::ngram_model_test
