// Every strategy with trained heads, here with random weights, under the rules that judge whole paths:
// `block` on chains and `traversal` on chains and trees. Greedy text is bit for bit that of autoregressive
// decoding. Drawn tokens come with the rows that they were drawn from. tests/decoding/rules/markov_test.cpp
// enumerates the law of the text.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/decoding/loop/loop_fixture.h"
#include "tests/model/heads/random_heads.h"

namespace speclab::path_rules_of_heads_test {
namespace {

using namespace speclab::fixtures;

struct Judged {
  const char* rule;
  std::vector<int> widths;
};

/// So few tokens that a tree has room for all of them, and that random heads are often right.
TinyModel small_model() {
  Shape shape = tiny_shape();
  shape.vocab = 6;
  return random_llama(shape, 20);
}

class HeadsUnderPathRules : public testing::TestWithParam<const char*> {
 protected:
  Decode decode(const Judged& judged, const char* children, const json& more) const {
    const std::string kind = GetParam();
    json options = {{"head", head_}, {"widths", judged.widths}, {"children", children}};
    if (kind == "eagle") options["shape"] = "fixed";
    json all = {{"max_tokens", 80}, {"rule", judged.rule}};
    all.update(more);
    return {.target = target_,
            .strategy = choose(kind, options),
            .options = all,
            .prompt = {5, 1, 2, 3, 4, 0, 2}};
  }

  TempDir dir_;
  ModelPtr target_ = load_tiny(small_model());
  std::string head_ = write_random_head(dir_.path() / "head", GetParam(), target_->config(), {});
};

TEST_P(HeadsUnderPathRules, GreedyTextIsTheTargets) {
  for (const Judged& judged :
       std::vector<Judged>{{"block", {1, 1, 1}}, {"traversal", {1, 1, 1}}, {"traversal", {6, 2, 1}}}) {
    for (const char* children : {"best", "without_replacement"}) {
      SCOPED_TRACE(std::string(judged.rule) + ", " + children);
      const Decode with_head = decode(judged, children, {{"temperature", 0}});
      Decode plain = with_head;
      plain.strategy = choose("autoregressive");
      const GenerationRecord expected = plain.run(), record = with_head.run();
      EXPECT_EQ(record.tokens, expected.tokens);
      EXPECT_EQ(record.row_hashes, expected.row_hashes);
      EXPECT_GT(drafted(record), 20);
      if (judged.widths.front() > 1) {
        EXPECT_GT(total(record, &StepRecord::accepted), 10);
      }
    }
  }
}

TEST_P(HeadsUnderPathRules, DrawnTokensComeWithTheirRows) {
  for (const Judged& judged : std::vector<Judged>{{"block", {1, 1, 1}}, {"traversal", {2, 2, 1}}}) {
    SCOPED_TRACE(judged.rule);
    const GenerationRecord record =
        decode(judged, "without_replacement", {{"temperature", 1}, {"ignore_eos", true}}).run();
    EXPECT_EQ(record.tokens.size(), 80u);
    int drawn = 0, accepted = 0, rejected = 0;
    for (const StepRecord& step : record.steps) {
      for (const DraftedToken& token : step.drafted) {
        if (!token.tested) continue;
        EXPECT_GT(token.q, 0);
        drawn += token.q < 1 ? 1 : 0;
        ++(token.accepted ? accepted : rejected);
      }
    }
    EXPECT_GT(drawn, 20);
    EXPECT_GT(accepted, 0);
    EXPECT_GT(rejected, 0);
  }
}

// On a chain, traversal is block verification, also with the same coins.
TEST_P(HeadsUnderPathRules, BothRulesAreOneOnChains) {
  for (const json& options : {json{{"temperature", 1}}, json{{"temperature", .7}, {"top_k", 4}}}) {
    const GenerationRecord block = decode({"block", {1, 1, 1}}, "without_replacement", options).run(),
                           traversal = decode({"traversal", {1, 1, 1}}, "without_replacement", options).run();
    EXPECT_EQ(block.tokens, traversal.tokens);
    EXPECT_EQ(block.steps.size(), traversal.steps.size());
    EXPECT_GT(total(block, &StepRecord::accepted), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, HeadsUnderPathRules,
                         testing::Values("blockwise", "medusa", "hydra", "mlp_speculator", "eagle", "pass",
                                         "block_draft"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace speclab::path_rules_of_heads_test
