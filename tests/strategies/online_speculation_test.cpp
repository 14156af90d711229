#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/base/error_text.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::online_speculation_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

const json kEveryStep = {{"learning_rate", 1}, {"update_every", 1}};

StrategyChoice learning(const json& options) {
  json all = kEveryStep;
  all.update(options);
  return choose("online_speculation", all);
}

// A greedy text of a Markov chain runs into a cycle, so the draft meets its mistakes again and again.
TEST(OnlineSpeculation, LearnsARepeatedText) {
  std::size_t online = 0, plain = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Decode decode{.target = random_markov(6, 10 + seed, 4),
                  .draft = random_markov(6, 20 + seed, 4),
                  .options = {{"max_tokens", 300}},
                  .loop = {.capacity = 400}};
    const GenerationRecord reference = decode.run();
    decode.strategy = choose("speculative_sampling", {{"gamma", 4}});
    plain += decode.run().steps.size();
    decode.strategy = learning({{"gamma", 4}});
    const GenerationRecord record = decode.run();
    online += record.steps.size();
    EXPECT_EQ(record.tokens, reference.tokens);
    EXPECT_EQ(record.row_hashes, reference.row_hashes);
  }
  EXPECT_LT(online, plain * 7 / 10);
}

/// Mean of sum min(p, q) over the tested tokens of steps [first, last).
double mean_acceptance(const GenerationRecord& record, std::size_t first, std::size_t last) {
  double sum = 0;
  int count = 0;
  for (std::size_t i = first; i < last; ++i) {
    for (const DraftedToken& token : record.steps.at(i).drafted) {
      if (!token.tested) continue;
      EXPECT_GE(token.expected, 0);
      sum += token.expected;
      ++count;
    }
  }
  return sum / count;
}

TEST(OnlineSpeculation, AcceptanceRisesWhileASampledTextIsDecoded) {
  Decode decode{.target = random_markov(8, 31),
                .draft = random_markov(8, 32),
                .options = {{"max_tokens", 800}, {"temperature", 1}},
                .loop = {.capacity = 900}};
  const auto first_and_last = [&](const StrategyChoice& strategy) {
    decode.strategy = strategy;
    const GenerationRecord record = decode.run();
    const std::size_t steps = record.steps.size() - 1;  // the last one may have no room for a draft
    EXPECT_GT(steps, 120u);
    return std::pair(mean_acceptance(record, 0, 40), mean_acceptance(record, steps - 60, steps));
  };
  const auto plain = first_and_last(choose("speculative_sampling", {{"gamma", 3}}));
  for (const char* objective : {"forward_kl", "reverse_kl"}) {
    SCOPED_TRACE(objective);
    const auto online = first_and_last(learning({{"gamma", 3}, {"objective", objective}}));
    EXPECT_GT(online.second, plain.second + .1);
    EXPECT_GT(online.second, online.first + .05);
  }
  // A rate of 0 leaves the draft as it is: the same draws, the same steps.
  const auto still = first_and_last(learning({{"gamma", 3}, {"learning_rate", 0}}));
  EXPECT_EQ(still, plain);
}

TEST(OnlineSpeculation, EveryObjectiveLeavesTheGreedyTextAsItIs) {
  const ModelPtr target = tiny_target();
  Decode decode{.target = target,
                .draft = load_tiny(random_llama(tiny_draft_shape(tiny_shape()), 5), target),
                .options = {{"max_tokens", 60}}};
  const GenerationRecord reference = decode.run();
  for (const char* objective : {"forward_kl", "reverse_kl", "jsd", "total_variation"}) {
    decode.strategy = learning({{"gamma", 3}, {"objective", objective}, {"corrected_tokens", 5}});
    const GenerationRecord record = decode.run();
    EXPECT_EQ(record.tokens, reference.tokens) << objective;
    EXPECT_EQ(record.row_hashes, reference.row_hashes) << objective;
    EXPECT_GT(drafted(record), 0) << objective;
  }
}

/// The number of steps of two texts after the same prompt, the second one in this turn.
std::vector<std::size_t> steps_of_two(bool keep, int second_turn) {
  const Decode decode{.target = random_markov(6, 31),
                      .draft = random_markov(6, 32),
                      .options = {{"max_tokens", 200}, {"temperature", 1}, {"coins", "gumbel"}}};
  DecodeLoop loop(decode.target, decode.draft, learning({{"gamma", 4}, {"keep", keep}}), {.capacity = 256});
  std::vector<std::size_t> steps;
  for (const int turn : {0, second_turn}) {
    Request request = decode.request();
    request.turn = turn;
    steps.push_back(loop.run(request).steps.size());
  }
  return steps;
}

TEST(OnlineSpeculation, TheNextConversationKnowsNothingUnlessTheOptionSaysSo) {
  EXPECT_FALSE(learning({{"keep", false}}).carries_memory());
  EXPECT_TRUE(learning({{"keep", true}}).carries_memory());
  const std::vector<std::size_t> forgets = steps_of_two(false, 0), keeps = steps_of_two(true, 0),
                                 goes_on = steps_of_two(false, 1);
  EXPECT_EQ(forgets[1], forgets[0]);
  EXPECT_EQ(keeps[0], forgets[0]);
  EXPECT_LT(keeps[1], keeps[0]);
  EXPECT_EQ(goes_on, keeps) << "a later turn of the same conversation";
}

// The loop does not call begin() for turn 0 if its first token ends it. Then the first call of the next
// conversation has a later turn, and its text does not continue the text of the conversation before.
TEST(OnlineSpeculation, AConversationWithoutTurnZeroKnowsNothingOfTheOneBefore) {
  const Decode before{.target = random_markov(6, 31),
                      .draft = random_markov(6, 32),
                      .options = {{"max_tokens", 200}, {"temperature", 1}, {"coins", "gumbel"}}};
  Decode decode = before;
  decode.prompt = {4, 5, 4};
  const auto steps_after = [&](bool another) {
    DecodeLoop loop(decode.target, decode.draft, learning({{"gamma", 4}}), {.capacity = 256});
    if (another) loop.run(before.request());
    Request request = decode.request();
    request.turn = 1;
    return loop.run(request).steps.size();
  };
  EXPECT_EQ(steps_after(true), steps_after(false));
}

TEST(OnlineSpeculation, RefusesOptionsOutOfRange) {
  const auto refused = [](const char* option, const json& value) {
    return message_of([&] { choose("online_speculation", {{option, value}}); });
  };
  EXPECT_THAT(refused("objective", "least_squares"), HasSubstr("objective"));
  EXPECT_THAT(refused("learning_rate", -.1), HasSubstr("learning_rate"));
  EXPECT_THAT(refused("learning_rate", 2.5), HasSubstr("learning_rate"));
  EXPECT_THAT(refused("clip", 0), HasSubstr("clip"));
  EXPECT_THAT(refused("least_gradient", 1.5), HasSubstr("least_gradient"));
  EXPECT_THAT(refused("update_every", 0), HasSubstr("update_every"));
  EXPECT_THAT(refused("buffer", 0), HasSubstr("buffer"));
  EXPECT_THAT(refused("corrected_tokens", 0), HasSubstr("corrected_tokens"));
  EXPECT_THAT(refused("gamma", 0), HasSubstr("gamma"));
  EXPECT_EQ(refused("gamma", 3), "no error");
}

}  // namespace
}  // namespace speclab::online_speculation_test
