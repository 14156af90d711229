#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "core/base/error.h"
#include "core/decoding/drafting/datastore.h"
#include "tests/base/error_text.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::composition_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

/// Makes a datastore of two documents, once.
std::string small_datastore(const Model& target, const std::vector<std::vector<Token>>& documents) {
  static const TempDir dir;
  static int made = 0;
  const std::filesystem::path path = dir.path() / std::to_string(made++);
  Datastore::Builder builder(target.config().vocab, target.tokenizer_sha256());
  for (const std::vector<Token>& document : documents) builder.add(document);
  builder.write(path);
  return path.string();
}

class Composition : public ::testing::TestWithParam<json> {
 protected:
  ModelPtr target = tiny_target(3);
  Decode decode{.target = target, .draft = Model::with_layers(target, {0}), .options = {{"max_tokens", 150}}};
};

TEST_P(Composition, GreedyTextAndRowsAreThoseOfAutoregressiveDecoding) {
  const GenerationRecord plain = decode.run();
  json given = GetParam();
  if (given.contains("datastore")) given["datastore"] = small_datastore(*target, {plain.tokens, {1, 2, 3}});
  decode.strategy = choose("composition", given);
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  EXPECT_EQ(record.row_hashes, plain.row_hashes);
  EXPECT_LT(record.steps.size(), plain.steps.size());
  const StrategyChoice choice = choose("composition", given);
  const json options = echo_options(StrategyChoice(choice).fields());
  for (const StepRecord& step : record.steps) {
    std::set<std::pair<int, Token>> nodes;  // no two children of one node are the same token
    for (const DraftedToken& token : step.drafted) EXPECT_TRUE(nodes.insert({token.parent, token.id}).second);
    EXPECT_EQ(step.source.empty(), step.drafted.empty());
    if (options["order"] == "first") {
      EXPECT_THAT(step.source, ::testing::AnyOf("", "text", "draft"));
      EXPECT_EQ(step.draft_calls > 0, step.source != "text");
    }
  }
}
INSTANTIATE_TEST_SUITE_P(
    Options, Composition,
    ::testing::Values(
        json::object(), json{{"order", "first"}, {"worth_of_draft", 0}},
        json{{"worth", 0}, {"worth_of_draft", 0}, {"worth_of_runner_up", 0}, {"nodes", 40}, {"length", 12}},
        json{{"sure", 1}, {"worth", .05}, {"nodes", 20}},
        json{{"sources", {"draft"}}, {"worth_of_runner_up", 0}}, json{{"sources", {"text"}}},
        json{{"sources", {"earlier", "text"}}, {"trust", {1}}},
        json{{"sources", {"text", "earlier", "datastore", "draft"}},
             {"datastore", ""},
             {"sure", 1},
             {"worth", .01},
             {"nodes", 30}},
        json{{"sources", {"datastore", "draft"}}, {"datastore", ""}, {"order", "listed"}}));

TEST_F(Composition, EverySourceIsUsedAndNamed) {
  decode.strategy = choose(
      "composition", {{"worth", .02}, {"worth_of_draft", 0}, {"worth_of_runner_up", .02}, {"sure", .6}});
  std::set<std::string> sources;
  int siblings = 0;
  for (const StepRecord& step : decode.run().steps) {
    sources.insert(step.source);
    for (std::size_t i = 0; i < step.drafted.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j)
        siblings += step.drafted[i].parent == step.drafted[j].parent ? 1 : 0;
    }
  }
  EXPECT_TRUE(sources.contains("draft"));
  EXPECT_TRUE(sources.contains("text"));
  EXPECT_TRUE(sources.contains("draft+text"));
  EXPECT_GT(siblings, 0);
}

// Text and datastore continue differently. They share one tree, and the record names the source of each node.
TEST_F(Composition, CopiesOfSeveralSourcesAreOneTree) {
  const std::string datastore =
      small_datastore(*target, {{7, 8, 9, 9, 9}, {7, 8, 9, 9, 9}, {7, 8, 5, 6, 6}, {7, 8}});
  decode.prompt = {7, 8, 5, 6, 7, 8};
  const auto first_step = [&](json options) {
    options.update({{"sources", options.value("sources", json{"text", "datastore"})},
                    {"datastore", datastore},
                    {"worth", .01},
                    {"nodes", 20},
                    {"trust", {1}}});
    Resources resources;
    resources.target = target;
    resources.capacity = 64;
    const auto strategy = choose("composition", options).make(resources);
    Sequence sequence;
    sequence.tokens = decode.prompt;
    sequence.prompt_length = 5;
    sequence.depth_limit = 3;
    strategy->begin(sequence);
    Draft draft;
    draft.reset(sequence.tokens.back());
    const Sequence* const sequences[] = {&sequence};
    Draft* const drafts[] = {&draft};
    strategy->draft(sequences, drafts);
    return draft;
  };
  // The text gives 5 6 7 for certain. The datastore gives 9 9 9 with weight 1/2 and 5 6 6 with 1/4, which
  // shares a prefix.
  const Draft merged = first_step({{"order", "tree"}});
  const std::vector<Token> tokens(merged.tree.tokens().begin() + 1, merged.tree.tokens().end());
  EXPECT_EQ(tokens, (std::vector<Token>{5, 6, 7, 9, 9, 9, 6}));
  EXPECT_EQ(merged.tree.parent(4), 0);
  EXPECT_EQ(merged.tree.parent(7), 2) << "behind 5 6";
  EXPECT_EQ(merged.source, "text+datastore");
  ASSERT_EQ(merged.contributions.size(), 2u);
  EXPECT_EQ(merged.contributions[0].source, "text");
  EXPECT_EQ(merged.contributions[1].source, "datastore");
  EXPECT_EQ(merged.contributions[1].first, 4);
  EXPECT_NEAR(merged.confidence[4], .5, 1e-6);
  EXPECT_NEAR(merged.confidence[7], 1, 1e-6) << "all that began 5 6 went on with it";

  const Draft surest = first_step({{"order", "first"}});
  EXPECT_EQ(surest.source, "text");
  EXPECT_EQ(surest.tree.drafted(), 3);
  EXPECT_TRUE(surest.contributions.empty());
  EXPECT_EQ(first_step({{"order", "listed"}}).source, "text");
  EXPECT_EQ(first_step({{"order", "listed"}, {"sources", {"datastore", "text"}}}).source, "datastore");
  decode.prompt = {1, 2, 3, 7, 8};
  EXPECT_EQ(first_step({{"order", "listed"}}).source, "datastore") << "the text knows nothing";
}

// Drawn tokens are verified, however improbable they are.
TEST_F(Composition, ATemperatureLeavesNoDrawnTokenOut) {
  decode.options["temperature"] = 1;
  decode.strategy = choose("composition", {{"sources", {"draft"}},
                                           {"worth_of_draft", 1},
                                           {"schedule", "constant"},
                                           {"gamma", 2},
                                           {"runner_up", false}});
  const GenerationRecord record = decode.run();
  for (std::size_t i = 0; i + 2 < record.steps.size(); ++i) EXPECT_EQ(record.steps[i].drafted.size(), 2u);
  decode.options["temperature"] = 0;
  EXPECT_EQ(drafted(decode.run()), 0);
}

TEST_F(Composition, UnknownSourcesAreRefused) {
  Resources resources;
  resources.target = target;
  const auto error = [&](const json& options) {
    return message_of([&] { choose("composition", options).make(resources); });
  };
  EXPECT_THAT(error({{"sources", {"text", "draf"}}}), HasSubstr("Did you mean \"draft\"?"));
  EXPECT_THAT(error({{"sources", json::array()}}), HasSubstr("an empty list"));
  EXPECT_THAT(error({{"sources", {"text", "text"}}}), HasSubstr("twice"));
  EXPECT_THAT(error({{"sources", {"datastore"}}}), HasSubstr("no file"));
  EXPECT_THAT(error({{"datastore", "here"}}), HasSubstr("otherwise none"));
  EXPECT_EQ(error({{"sources", {"draft"}}}), "no error");
}

}  // namespace
}  // namespace speclab::composition_test
