#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::jacobi_test {
namespace {

using namespace speclab::fixtures;

class Jacobi : public ::testing::Test {
 protected:
  ModelPtr target = tiny_target(3);
  Decode decode{.target = target, .options = {{"max_tokens", 60}}, .prompt = {3, 1, 4, 1, 5, 9, 2, 6}};

  GenerationRecord run(const json& options) {
    Decode with = decode;
    with.strategy = choose("jacobi", options);
    return with.run();
  }
};

std::vector<Token> chain(const StepRecord& step) {
  std::vector<Token> out;
  for (const DraftedToken& token : step.drafted) out.push_back(token.id);
  return out;
}

// After t iterations on a block at least t tokens are right, so a block of b tokens takes at most b forwards.
// A forward that changes nothing has found the fixed point.
TEST_F(Jacobi, NeverTakesMoreForwardsThanAutoregressiveDecoding) {
  const GenerationRecord plain = decode.run();
  for (const char* scheme : {"parallel", "blocks", "sliding"}) {
    for (const int block : {1, 2, 3, 8, 64}) {
      const GenerationRecord record = run({{"scheme", scheme}, {"block", block}});
      EXPECT_EQ(record.tokens, plain.tokens) << scheme << block;
      EXPECT_EQ(record.row_hashes, plain.row_hashes) << scheme << block;
      EXPECT_LE(record.steps.size(), plain.steps.size()) << scheme << block;
    }
  }
}

TEST_F(Jacobi, TheNextGuessIsWhatTheRowsSaid) {
  const GenerationRecord record = run({{"scheme", "sliding"}, {"block", 6}});
  // Feeding an iterate must give the recorded next iterate.
  std::vector<Token> text = decode.prompt;
  text.push_back(record.tokens[0]);
  std::size_t at = 1;
  const auto session = target->open(256);
  std::vector<float> logits(static_cast<std::size_t>(target->config().vocab));
  for (std::size_t s = 0; s + 1 < 12; ++s) {
    const std::vector<Token> now = chain(record.steps[s]), next = chain(record.steps[s + 1]);
    ASSERT_EQ(now.size(), 5u);
    for (std::size_t k = 0; k + static_cast<std::size_t>(record.steps[s].emitted) < 6; ++k) {
      std::vector<Token> fed = text;
      fed.insert(fed.end(), now.begin(),
                 now.begin() + static_cast<std::ptrdiff_t>(k) + record.steps[s].emitted);
      session->rewind(0);
      session->prefill(fed, logits.data());
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      EXPECT_EQ(next[k], static_cast<Token>(best)) << s << " " << k;
    }
    for (int i = 0; i < record.steps[s].emitted; ++i) text.push_back(record.tokens[at++]);
  }
}

TEST_F(Jacobi, BlocksEndWhereTheySay) {
  const GenerationRecord record = run({{"scheme", "blocks"}, {"block", 5}});
  int left = 5, tokens = 1;
  for (const StepRecord& step : record.steps) {
    EXPECT_EQ(static_cast<int>(step.drafted.size()), std::min(left - 1, 60 - tokens - 1));
    tokens += step.emitted;
    left -= step.emitted;
    if (left == 0) left = 5;
    ASSERT_GT(left, 0);
  }
}

TEST_F(Jacobi, TheWholeContinuationIsOneBlock) {
  const GenerationRecord record = run({{"scheme", "parallel"}});
  int tokens = 1;
  for (const StepRecord& step : record.steps) {
    EXPECT_EQ(static_cast<int>(step.drafted.size()), 60 - tokens - 1);
    tokens += step.emitted;
  }
}

// If the next token does not depend on the one before, the second iterate is completely right.
TEST_F(Jacobi, TheTailIsWorthKeeping) {
  std::vector<float> logits(16 * 16, 0);
  for (std::size_t token = 0; token < 16; ++token) logits[token * 16 + 7] = 9;
  decode.target = target = load_tiny(markov_table(16, logits));
  decode.prompt = {1, 2};
  const json kept = {{"scheme", "sliding"}, {"block", 8}, {"initial", "prompt"}};
  json anew = kept;
  anew["keep_tail"] = false;
  EXPECT_LE(run(kept).steps.size(), 14u);  // eight tokens, then one while the next block is guessed
  EXPECT_EQ(run(anew).steps.size(), 59u);
}

TEST_F(Jacobi, TheHybridGoesOnAlone) {
  const GenerationRecord record = run({{"scheme", "sliding"}, {"block", 6}, {"parallel_tokens", 20}});
  int tokens = 1;
  for (const StepRecord& step : record.steps) {
    EXPECT_EQ(step.drafted.empty(), tokens >= 20 || tokens >= 59);
    tokens += step.emitted;
  }
}

// Lookahead with N = 2 is the same algorithm if its window is accepted and moves with the text.
TEST_F(Jacobi, IsLookaheadWithoutNgrams) {
  for (const int block : {2, 3, 7}) {
    const GenerationRecord record = run({{"scheme", "sliding"}, {"block", block}});
    Decode other = decode;
    other.strategy = choose(
        "lookahead", {{"W", block}, {"N", 2}, {"G", 0}, {"accept_window", true}, {"forward", "accepted"}});
    const GenerationRecord same = other.run();
    ASSERT_EQ(record.steps.size(), same.steps.size());
    for (std::size_t i = 0; i < record.steps.size(); ++i) {
      EXPECT_EQ(chain(record.steps[i]), chain(same.steps[i])) << block << " " << i;
      EXPECT_EQ(record.steps[i].emitted, same.steps[i].emitted);
    }
  }
}

}  // namespace
}  // namespace speclab::jacobi_test
