#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/base/error_text.h"
#include "tests/spec/loop_fixture.h"

namespace speclab {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

class Composition : public ::testing::TestWithParam<json> {
 protected:
  ModelPtr target = tiny_target(3);
  Decode decode{.target = target, .draft = Model::with_layers(target, {0}), .options = {{"max_tokens", 150}}};
};

TEST_P(Composition, GreedyTextAndRowsAreThoseOfAutoregressiveDecoding) {
  const GenerationRecord plain = decode.run();
  decode.strategy = choose("composition", GetParam());
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  EXPECT_EQ(record.row_hashes, plain.row_hashes);
  EXPECT_LT(record.steps.size(), plain.steps.size());
  const StrategyChoice choice = choose("composition", GetParam());
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
        json{{"sources", {"earlier", "text"}}, {"trust", {1}}}));

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

// Tokens that were drawn are verified whatever their probability is.
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
  EXPECT_EQ(error({{"sources", {"draft"}}}), "no error");
}

}  // namespace
}  // namespace speclab
