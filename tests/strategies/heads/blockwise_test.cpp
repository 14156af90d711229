// Blockwise parallel decoding on a target that is a table of words, with heads whose guesses are known: the
// worked example of Stern et al. 2018 (Figures 1 and 2), and the number of forwards that right heads need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/model/heads/random_heads.h"

namespace speclab::blockwise_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum Word : Token { I, saw, a, dog, ride, in, the, car, stop, big, bus, count };

/// The word that the target says after each word: "I saw a dog ride in the car. I saw ...".
Token after(Token word) {
  if (word == big) return bus;
  if (word == bus || word == stop) return word == bus ? stop : I;
  return word + 1;
}

ModelPtr target_of_words() {
  std::vector<float> logits(count * count, 0);
  for (Token word = 0; word < count; ++word) logits[static_cast<std::size_t>(word * count + after(word))] = 4;
  return load_tiny(markov_table(count, logits));
}

/// A wrong guess: after `word`, the head guesses the word that follows `guess_after` in the target.
struct Wrong {
  int head;
  Token word, guess_after;
};

/// Heads that are right, except for `wrong`. The target's state after a word is the word, as a one-hot
/// vector. Head i replaces it by the state after the word i + 1 places later.
std::string write_heads(const std::filesystem::path& folder, const ModelConfig& target, int heads,
                        const std::vector<Wrong>& wrong = {}) {
  Tensors tensors;
  const auto zeros = [](std::vector<std::int64_t> shape) {
    std::size_t size = 1;
    for (const auto extent : shape) size *= static_cast<std::size_t>(extent);
    return TinyTensor{std::move(shape), std::vector<float>(size, 0)};
  };
  TinyTensor identity = zeros({count, count});
  for (std::size_t word = 0; word < count; ++word) identity.values[word * count + word] = 1;
  tensors["ffn_in.weight"] = identity;
  tensors["ffn_in.bias"] = zeros({count});
  for (int head = 0; head < heads; ++head) {
    TinyTensor out = zeros({count, count});
    for (Token word = 0; word < count; ++word) {
      Token state = word;
      for (int place = 0; place <= head; ++place) state = after(state);
      for (const Wrong& other : wrong)
        if (other.head == head && other.word == word) state = other.guess_after;
      out.values[static_cast<std::size_t>(state * count + word)] += 1;
      out.values[static_cast<std::size_t>(word * count + word)] -= 1;
    }
    tensors["ffn_out." + std::to_string(head) + ".weight"] = out;
    tensors["ffn_out." + std::to_string(head) + ".bias"] = zeros({count});
  }
  const RandomHead shape{.heads = heads, .inner = count};
  write_head_folder(folder, head_card("blockwise", target, shape), tensors);
  return folder.string();
}

class BlockwiseDecoding : public testing::Test {
 protected:
  GenerationRecord run(const std::string& phases, const std::string& head, const std::vector<Token>& prompt,
                       int max_tokens, const json& more = json::object()) const {
    json options = {{"temperature", 0}, {"max_tokens", max_tokens}};
    options.update(more);
    return Decode{.target = target,
                  .strategy = choose("blockwise", {{"head", head}, {"phases", phases}}),
                  .options = options,
                  .prompt = prompt}
        .run();
  }
  static std::vector<Token> guesses(const StepRecord& step) {
    std::vector<Token> out;
    for (const DraftedToken& token : step.drafted) out.push_back(token.id);
    return out;
  }
  TempDir dir;
  ModelPtr target = target_of_words();
};

// "I saw a dog ride": the block is "in the bus". The target says "car" after "the". So "in the" is kept, and
// the next block begins with "car".
TEST_F(BlockwiseDecoding, TheExampleOfThePaperMerged) {
  const std::string head = write_heads(dir.path() / "head", target->config(), 2, {{1, ride, big}});
  const GenerationRecord record = run("merged", head, {I, saw, a, dog, ride}, 6);
  EXPECT_THAT(record.tokens, ElementsAre(in, the, car, stop, I, saw));
  ASSERT_EQ(record.steps.size(), 2u);
  // The first word of a block is the pending token: the target's own.
  EXPECT_THAT(guesses(record.steps[0]), ElementsAre(the, bus));
  EXPECT_EQ(record.steps[0].accepted, 1);
  EXPECT_EQ(record.steps[0].emitted, 2);  // "the", and "car", which begins the next block
  EXPECT_THAT(guesses(record.steps[1]), ElementsAre(stop, I));
  EXPECT_EQ(record.steps[1].accepted, 2);
}

TEST_F(BlockwiseDecoding, TheExampleOfThePaperInTwoPhases) {
  const std::string head = write_heads(dir.path() / "head", target->config(), 3, {{1, ride, big}});
  const GenerationRecord record = run("two_phase", head, {I, saw, a, dog}, 5);
  EXPECT_THAT(record.tokens, ElementsAre(ride, in, the, car, stop));
  ASSERT_EQ(record.steps.size(), 2u);
  EXPECT_THAT(guesses(record.steps[0]), ElementsAre(in, the, bus));
  EXPECT_EQ(record.steps[0].accepted, 2);
  EXPECT_EQ(record.steps[0].emitted, 3);  // "in the", and the target's "car" from the verifying forward
}

// With heads that are always right, m tokens take m / k + 1 forwards merged and 2 m / k in two phases.
TEST_F(BlockwiseDecoding, RightHeadsNeedTheForwardsOfThePaper) {
  for (const int k : {2, 3, 5}) {
    const std::string head = write_heads(dir.path() / std::to_string(k), target->config(), k - 1);
    const int blocks = 6, m = k * blocks;
    // The prefill gives the token that a block begins with.
    const GenerationRecord merged = run("merged", head, {I, saw}, m + 1),
                           two = run("two_phase", head, {I, saw}, m + 1);
    EXPECT_EQ(merged.tokens, two.tokens);
    EXPECT_EQ(static_cast<int>(merged.steps.size()) + 1, m / k + 1) << k;  // and the prefill
    // Each step of two_phase has two forwards. The forward before the draft counts as work of the draft,
    // which also downloads the rows of the heads that run: all but the last.
    EXPECT_EQ(2 * static_cast<int>(two.steps.size()), 2 * m / k) << k;
    for (const StepRecord& step : merged.steps) {
      EXPECT_EQ(step.accepted, k - 1);
      EXPECT_EQ(step.draft_calls, k - 1);
      EXPECT_EQ(step.rows, k);
    }
    for (const StepRecord& step : two.steps) {
      EXPECT_EQ(step.accepted, k - 1);
      EXPECT_EQ(step.draft_calls, 1 + (k - 2));
      EXPECT_EQ(step.rows, k);
    }
  }
}

// The criteria of the paper on the example's wrong guess. The target's row after "the" has "car" before all
// other words, which are equal. "bus" has the highest id of them, so it is the last by rank.
TEST_F(BlockwiseDecoding, TheCriteriaOfThePaperJudgeTheWrongGuess) {
  const std::string head = write_heads(dir.path() / "head", target->config(), 2, {{1, ride, big}});
  const auto accepted = [&](const json& rule) {
    return run("merged", head, {I, saw, a, dog, ride}, 6, rule).steps.at(0).accepted;
  };
  EXPECT_EQ(accepted({{"rule", "exact"}}), 1);
  EXPECT_EQ(accepted({{"rule", "top_beta"}, {"beta", 10}}), 1);
  EXPECT_EQ(accepted({{"rule", "top_beta"}, {"beta", 11}}), 2);
  EXPECT_EQ(accepted({{"rule", "distance"}, {"token_distance", bus - car - 1}}), 1);
  EXPECT_EQ(accepted({{"rule", "distance"}, {"token_distance", bus - car}}), 2);
  EXPECT_EQ(accepted({{"rule", "minimum_block"}, {"min_block", 2}}), 1);
  EXPECT_EQ(accepted({{"rule", "minimum_block"}, {"min_block", 3}}), 2);
  EXPECT_EQ(accepted({{"rule", "specdec"}, {"beta", 11}, {"gap", 3.9}}), 1);
  EXPECT_EQ(accepted({{"rule", "specdec"}, {"beta", 11}, {"gap", 4.1}}), 2);
  EXPECT_EQ(accepted({{"rule", "specdec"}, {"beta", 10}, {"gap", 4.1}}), 1);
}

TEST_F(BlockwiseDecoding, SaysWhatDoesNotFit) {
  const std::string head = write_heads(dir.path() / "head", target->config(), 2);
  const auto message = [&](const json& options) -> std::string {
    LoopOptions loop{.capacity = 64};
    loop.costs = std::make_shared<const StepCosts>(StepCosts{.target_ns = {1, 2}});
    try {
      DecodeLoop(target, nullptr, choose("blockwise", options), loop);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message({{"head", head}}), "no error");
  EXPECT_THAT(message({{"head", head}, {"phases", "two_phase"}, {"budget", "auto"}}),
              testing::AllOf(HasSubstr("blockwise: phases, budget"), HasSubstr("fixed")));
  Json card = head_card("blockwise", target->config(), {.heads = 2, .inner = count});
  card["vocabulary_map"] = "draft_vocab";
  write_file(dir.path() / "head" / "head.json", card.dump());
  EXPECT_THAT(message({{"head", head}}),
              testing::AllOf(HasSubstr("vocabulary_map"), HasSubstr("output layer of the target")));
  card = head_card("blockwise", target->config(), {.heads = 3, .inner = count});
  write_file(dir.path() / "head" / "head.json", card.dump());
  EXPECT_THAT(message({{"head", head}}), HasSubstr("ffn_out.2.weight"));
  card["shape"].erase("inner");
  write_file(dir.path() / "head" / "head.json", card.dump());
  EXPECT_THAT(message({{"head", head}}), HasSubstr("inner"));
}

}  // namespace
}  // namespace speclab::blockwise_test
