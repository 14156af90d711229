#include "core/decoding/drafting/suffix_memory.h"

#include <gtest/gtest.h>

namespace speclab::suffix_memory_test {
namespace {

// Two slots of a batch. The tokens after the first two of a text are its answer.
class TwoSlots : public ::testing::Test {
 protected:
  TwoSlots() : memory_(16, SuffixMemory::Remember::outputs, 1000, two_slots()) {
    options_.length = 3, options_.factor = 4;
    for (int slot = 0; slot < 2; ++slot) {
      sequences_[slot].slot = slot;
      sequences_[slot].depth_limit = 10;
    }
  }
  void begin(int slot, const std::vector<Token>& prompt) {
    sequences_[slot].tokens = prompt;
    sequences_[slot].prompt_length = static_cast<int>(prompt.size());
    memory_.begin(sequences_[slot]);
  }
  void emit(int slot, const std::vector<Token>& tokens) {
    for (const Token token : tokens) sequences_[slot].tokens.push_back(token);
    memory_.catch_up(sequences_[slot]);
  }
  std::vector<Token> from_earlier(int slot) {
    memory_.from_earlier(sequences_[slot], options_, found_);
    std::vector<Token> tokens;
    for (const SuffixSpeculation::Node& node : found_.nodes()) tokens.push_back(node.token);
    return tokens;
  }
  const std::vector<Token> copied_{2, 3, 4};

 private:
  static Resources two_slots() {
    Resources resources;
    resources.batch = 2, resources.capacity = 64;
    return resources;
  }
  SuffixMemory memory_;
  SuffixSpeculationOptions options_;
  SuffixSpeculation found_;
  Sequence sequences_[2];
};

TEST_F(TwoSlots, ARunningTextFindsWhatAnotherSlotEmitted) {
  begin(0, {10, 11});
  begin(1, {12, 13});
  emit(0, {1, 2, 3, 4});
  emit(1, {1});
  EXPECT_TRUE(from_earlier(1).empty()) << "the other text still runs";
  begin(0, {20, 21});
  EXPECT_EQ(from_earlier(1), copied_);
}

TEST_F(TwoSlots, ARepeatedPromptDoesNotFindItsAnswerInAnotherSlot) {
  begin(0, {10, 11});
  emit(0, {1, 2, 3, 4});
  begin(1, {10, 11});
  begin(0, {20, 21});
  emit(1, {1});
  EXPECT_TRUE(from_earlier(1).empty());
}

TEST_F(TwoSlots, OfTwoEqualPromptsTheOneThatEndsFirstDoesNotHelpTheOther) {
  begin(0, {10, 11});
  begin(1, {10, 11});
  emit(1, {1, 2, 3, 4});
  emit(0, {1});
  begin(1, {20, 21});
  EXPECT_TRUE(from_earlier(0).empty());
  // A prompt that begins now may copy the answer.
  begin(0, {30, 31});
  emit(0, {1});
  EXPECT_EQ(from_earlier(0), copied_);
}

}  // namespace
}  // namespace speclab::suffix_memory_test
