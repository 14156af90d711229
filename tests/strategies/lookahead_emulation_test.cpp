// Lookahead decoding with the same steps as other implementations, including their faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "tests/strategies/lookahead_by_hand.h"

namespace speclab::lookahead_emulation_test {
namespace {

using namespace speclab::fixtures;

// lade makes the n-grams of the text from a list. For each accepted token it appends
// the last accepted one to this list.
TEST(Lookahead, NgramsOfTheTextAreThoseOfTheText) {
  const auto wrong = [](const json& more) {
    json options = {{"W", 3}, {"N", 4}, {"G", 16}, {"pool_from_prompt", true}};
    options.update(more);
    LookaheadByHand hand(options, {1, 2, 3, 4, 5, 6}, plus_one);
    int wrong = 0;
    for (int i = 0; i < 40; ++i) {
      hand.step();
      for (const auto& guess : hand.guesses()) {
        for (std::size_t k = 1; k < guess.size(); ++k) wrong += guess[k] == guess[k - 1] ? 1 : 0;
      }
    }
    return wrong;
  };
  EXPECT_EQ(wrong({{"full_match_bonus", false}}), 0);
  EXPECT_GT(wrong({{"emulate", "lade"}}), 0);
}

// After an accepted token, the last level of llama.cpp's window is a copy of its new first level. Ours is the
// prediction of the rows.
TEST(Lookahead, LlamaCppFillsTheLastLevelFromTheFirst) {
  const int W = 4, N = 4;
  const auto repeated = [&](const char* emulate) {
    LookaheadByHand hand({{"W", W}, {"N", N}, {"G", 4}, {"emulate", emulate}, {"forward", "accepted"}},
                         {1, 2, 3, 4, 5, 6}, phrases);
    int same = 0, looked = 0;
    for (int i = 0; i < 40; ++i) {
      if (hand.step() < 2 || i < 4) continue;
      hand.step();
      ++looked;
      const int first = hand.draft.tree.drafted();
      bool all = true;
      for (int c = 1; c < W; ++c)
        all = all &&
              hand.draft.tree.token(first + W - 1 + (N - 3) * W + c + 1) == hand.draft.tree.token(first + c);
      same += all ? 1 : 0;
    }
    EXPECT_GT(looked, 0);
    return static_cast<double>(same) / looked;
  };
  EXPECT_EQ(repeated("llama_cpp"), 1);
  EXPECT_LT(repeated("none"), 1);
}

// The two emulated implementations as lists of tokens, without trees. The tokens that a step
// emits follow from the lists alone. Level 0 of `levels` has no place for the pending token in
// lade, and an unused place in llama.cpp.
struct Naive {
  int W, N, G;
  bool lade;
  std::vector<Token> text;
  std::vector<std::vector<Token>> levels;
  std::map<Token, std::vector<std::vector<Token>>> pool;  // newest last

  Naive(int w, int n, int g, bool is_lade, const std::vector<Token>& prompt)
      : W(w), N(n), G(g), lade(is_lade), text(prompt) {
    const auto draw = [&](int i) { return prompt[static_cast<std::size_t>(i) % prompt.size()]; };
    if (lade) {
      levels.resize(1);
      for (int i = 0; i < W + N - 3; ++i) levels[0].push_back(draw(i));
    } else {
      levels.resize(static_cast<std::size_t>(N - 1));
      for (int i = 0; i < W * (N - 1); ++i) levels[static_cast<std::size_t>(i / W)].push_back(draw(i));
    }
  }

  int step(const LookaheadByHand::Oracle& oracle) {
    const std::size_t filled = levels.size(), skip = lade ? 0 : 1;
    const std::size_t columns = lade ? levels[0].size() + 1 : levels[0].size();
    std::vector<Token> predicted;
    for (std::size_t i = 0; i < columns; ++i) {
      std::vector<Token> seen = text;
      for (std::size_t k = 0; k < i; ++k) seen.push_back(levels[0][k + skip]);
      for (std::size_t j = 1; j < filled; ++j) seen.push_back(levels[j][i]);
      predicted.push_back(oracle(seen));
    }
    const Token pending = text.back();
    text.push_back(oracle(text));
    if (filled < static_cast<std::size_t>(N - 1)) {  // lade: a level more, a column less
      for (auto& level : levels) level.erase(level.begin());
      predicted.erase(predicted.begin());
      levels.push_back(predicted);
      return 1;
    }
    // lade's index stops at the last token of a guess, right or wrong.
    const std::size_t longest = static_cast<std::size_t>(lade ? N - 2 : N - 1);
    std::vector<Token> hits;
    for (const auto& guess : pool[pending]) {
      std::vector<Token> so_far(text.begin(), text.end() - 1);
      std::size_t right = 0;
      while (right < longest && oracle(so_far) == guess[right]) so_far.push_back(guess[right++]);
      if (right > hits.size()) hits.assign(guess.begin(), guess.begin() + static_cast<std::ptrdiff_t>(right));
    }
    if (!hits.empty()) {
      text.pop_back();
      text.insert(text.end(), hits.begin(), hits.end());
      text.push_back(oracle(text));
    }
    for (std::size_t i = 0; i < columns; ++i) {
      std::vector<Token> ngram;
      for (std::size_t j = 1; j < filled; ++j) ngram.push_back(levels[j][i]);
      ngram.push_back(predicted[i]);
      auto& list = pool[lade ? (i == 0 ? pending : levels[0][i - 1]) : levels[0][i]];
      const auto found = std::find(list.begin(), list.end(), ngram);
      if (found != list.end()) {
        if (!lade) continue;
        list.erase(found);
      }
      list.push_back(ngram);
      if (static_cast<int>(list.size()) > G) list.erase(list.begin());
    }
    for (std::size_t v = 0; v <= (lade ? 0 : hits.size()); ++v) {
      levels.erase(levels.begin());
      levels.push_back(v == 0 ? predicted : levels[0]);
    }
    if (lade) levels[0].erase(levels[0].begin());
    return static_cast<int>(hits.size()) + 1;
  }
};

TEST(Lookahead, EmulatesTheStepsOfOthers) {
  std::mt19937 random(23);
  std::map<std::string, int> bonus;
  for (int trial = 0; trial < 60; ++trial) {
    const int W = static_cast<int>(1 + random() % 8), N = static_cast<int>(3 + random() % 4),
              G = static_cast<int>(1 + random() % 6);
    const std::string emulate = trial % 2 == 0 ? "lade" : "llama_cpp";
    const LookaheadByHand::Oracle oracle = trial % 3 == 0 ? plus_one : trial % 3 == 1 ? phrases : scrambled;
    std::vector<Token> prompt(2 + random() % 12);
    for (Token& token : prompt) token = static_cast<Token>(random() % kHandVocab);
    const json options = {{"W", W}, {"N", N}, {"G", G}, {"emulate", emulate}, {"initial", "prompt"}};
    LookaheadByHand hand(options, prompt, oracle, 400);
    Naive naive(W, N, G, emulate == "lade", hand.text());
    for (int i = 0; i < 40; ++i) {
      const int emitted = hand.step();
      ASSERT_EQ(naive.step(oracle), emitted) << options << " step " << i;
      ASSERT_EQ(naive.text, hand.text());
      bonus[emulate] += emitted - 1;
    }
  }
  EXPECT_GT(bonus["lade"], 100);
  EXPECT_GT(bonus["llama_cpp"], 100);
}

}  // namespace
}  // namespace speclab::lookahead_emulation_test
