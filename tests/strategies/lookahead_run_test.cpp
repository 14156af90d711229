// Lookahead decoding with a real forward.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/strategies/lookahead_by_hand.h"

namespace speclab::lookahead_run_test {
namespace {

using namespace speclab::fixtures;

// llama.cpp samples the window's tokens like the text's; here they are best tokens, so that n-grams repeat.
TEST(LookaheadRun, TheWindowIsGreedyWhereTheTextIsSampled) {
  const std::size_t W = 5;
  const GenerationRecord record = Decode{
      .target = tiny_target(3),
      .strategy = choose("lookahead", {{"W", W}, {"N", 4}, {"G", 4}}),
      .options = {{"max_tokens", 30},
                  {"temperature", 1}}}.run();
  ASSERT_GE(record.steps.size(), 12u);
  for (std::size_t step = 2; step + 1 < 12; ++step) {  // the window is full, and probes are recorded
    const auto &now = record.steps[step].probes, &next = record.steps[step + 1].probes;
    ASSERT_EQ(now.size(), (W - 1) + 2 * W);
    ASSERT_EQ(next.size(), now.size());
    for (std::size_t column = 1; column <= W; ++column)
      EXPECT_EQ(next[next.size() - column].id, now[now.size() - column].best) << step << " " << column;
  }
}

TEST(LookaheadRun, GreedyTextAndRowsWithRandomOptions) {
  const ModelPtr target = tiny_target(3);
  std::mt19937 random(11);
  int accepted = 0;
  for (const std::vector<Token>& prompt : {std::vector<Token>{7}, {3, 1, 4, 1, 5, 9, 2, 6, 3, 1}}) {
    Decode plain{.target = target, .options = {{"max_tokens", 60}}, .prompt = prompt};
    const GenerationRecord expected = plain.run();
    for (int i = 0; i < 20; ++i) {
      json options = random_lookahead_options(random);
      if (i >= 16)
        options.update({{"N", 4}, {"accept_window", false}, {"emulate", i % 2 == 0 ? "lade" : "llama_cpp"}});
      Decode decode = plain;
      decode.strategy = choose("lookahead", options);
      const GenerationRecord record = decode.run();
      EXPECT_EQ(record.tokens, expected.tokens) << options;
      EXPECT_EQ(record.row_hashes, expected.row_hashes) << options;
      accepted += total(record, &StepRecord::accepted);
    }
  }
  EXPECT_GT(accepted, 50);
}

// Steps divided over devices have the text, rows and steps of one device, greedy or sampled. Each device
// feeds again the tokens that the previous step accepted.
TEST(LookaheadRun, DividedOverDevices) {
  const ModelPtr target = tiny_target(3);
  for (const json& options :
       {json{{"W", 7}, {"N", 4}, {"G", 6}, {"pool_from_prompt", true}}, json{{"W", 2}, {"N", 3}, {"G", 1}},
        json{{"W", 0}, {"N", 4}, {"G", 3}, {"pool_from_prompt", true}},
        json{{"W", 5}, {"N", 2}, {"G", 4}, {"accept_window", true}, {"forward", "accepted"}}}) {
    for (const double temperature : {0., .5}) {
      Decode decode{.target = target,
                    .strategy = choose("lookahead", options),
                    .options = {{"max_tokens", 60}, {"temperature", temperature}},
                    .prompt = {3, 1, 4, 1, 5, 9, 2, 6, 3, 1}};
      const GenerationRecord whole = decode.run();
      EXPECT_TRUE(whole.steps[0].parts.empty());
      if (temperature == 0) {
        EXPECT_GT(total(whole, &StepRecord::accepted), 0) << options;
      }
      for (const int devices : {2, 3, 8}) {
        SCOPED_TRACE(fmt::format("{} at {} over {}", options.dump(), temperature, devices));
        decode.loop.devices = devices;
        const GenerationRecord divided = decode.run();
        EXPECT_EQ(divided.tokens, whole.tokens);
        EXPECT_EQ(divided.row_hashes, whole.row_hashes);
        EXPECT_EQ(divided.target.calls, devices * static_cast<std::int64_t>(divided.steps.size()));
        EXPECT_EQ(divided.target.rows, total(divided, &StepRecord::rows));
        ASSERT_EQ(divided.steps.size(), whole.steps.size());
        int again = 0;
        for (std::size_t i = 0; i < whole.steps.size(); ++i) {
          const StepRecord& step = divided.steps[i];
          ASSERT_EQ(step.parts.size(), static_cast<std::size_t>(devices));
          int rows = 0;
          for (const DevicePart& part : step.parts) {
            EXPECT_GE(part.rows, again + 1)
                << "everybody feeds the pending token and what was accepted before it";
            EXPECT_LE(part.rows, again + whole.steps[i].rows);
            EXPECT_GT(part.ns, 0);
            rows += part.rows;
          }
          EXPECT_EQ(rows, step.rows);
          EXPECT_GE(rows, whole.steps[i].rows + devices - 1 + again * devices);
          again = step.accepted;
        }
      }
    }
  }
}

TEST(LookaheadRun, EndOfTheContextAndEndTokensInsideAGuess) {
  Shape shape = tiny_shape();
  shape.context = 40;
  const ModelPtr target = load_tiny(random_llama(shape, 3));
  Decode plain{.target = target, .options = {{"max_tokens", 100}}, .prompt = {3, 1, 4}};
  const GenerationRecord expected = plain.run();
  EXPECT_EQ(expected.finish, Finish::context);
  const json options = {{"W", 6}, {"N", 4}, {"G", 6}, {"pool_from_prompt", true}};
  Decode decode = plain;
  decode.strategy = choose("lookahead", options);
  EXPECT_EQ(decode.run().tokens, expected.tokens);
  for (std::size_t i = 1; i < expected.tokens.size(); ++i) {
    plain.eos = decode.eos = {expected.tokens[i]};
    const GenerationRecord short_text = plain.run(), record = decode.run();
    EXPECT_EQ(record.tokens, short_text.tokens);
    EXPECT_EQ(record.finish, short_text.finish);
  }
}

TEST(LookaheadRun, RowsThatNobodyReadsAreNotComputed) {
  Decode decode{.target = tiny_target(3),
                .strategy = choose("lookahead", {{"W", 6}, {"N", 5}, {"G", 0}}),
                .options = {{"max_tokens", 40}}};
  const GenerationRecord record = decode.run();
  // With a full window: 1 + 5 + 3 * 6 rows; the root and the last level have logits.
  EXPECT_EQ(record.steps.back().rows, 24);
  EXPECT_EQ(record.steps.back().drafted.size(), 0u);
  EXPECT_LT(record.target.logit_rows, static_cast<std::int64_t>(record.steps.size()) * 11);
  ASSERT_EQ(record.steps[6].probes.size(), 23u);
  EXPECT_EQ(record.steps[6].probes[0].best, -1);
  EXPECT_GE(record.steps[6].probes[22].best, 0);
  EXPECT_TRUE(record.steps[20].probes.empty());
}

}  // namespace
}  // namespace speclab::lookahead_run_test
