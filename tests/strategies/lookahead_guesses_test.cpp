// Guesses of lookahead decoding: which n-grams the pool holds and a step verifies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.h"
#include "tests/strategies/lookahead_by_hand.h"

namespace speclab::lookahead_guesses_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

// Steps whose guesses differ from the n-grams that the window has produced after the
// pending token so far, computed by hand.
int misspelled(int W, const json& more) {
  json options = {{"W", W}, {"N", 3}, {"G", -1}};
  options.update(more);
  LookaheadByHand hand(options, {3, 1, 4, 1, 5}, phrases);
  std::map<Token, std::set<std::vector<Token>>> seen;
  int wrong = 0;
  for (int i = 0; i < 40; ++i) {
    const Token pending = hand.text().back();
    hand.step();
    wrong += hand.guesses() != seen[pending] ? 1 : 0;
    const TokenTree& tree = hand.draft.tree;
    if (i == 0) continue;  // warming up
    EXPECT_EQ(tree.size() - 1 - tree.drafted(), (W - 1) + W);
    const int first = tree.drafted();
    for (int c = 0; c < W; ++c) {
      const Token key = c == 0 ? tree.token(0) : tree.token(first + c);
      const int last = first + W - 1 + c + 1;
      seen[key].insert({tree.token(last), hand.best[static_cast<std::size_t>(last)]});
    }
  }
  EXPECT_GT(seen.size(), 2u);
  return wrong;
}

TEST(Lookahead, GuessesAreTheNgramsThatTheWindowSpelled) {
  EXPECT_EQ(misspelled(3, json::object()), 0);
  EXPECT_EQ(misspelled(1, json::object()), 0);
}

// llama.cpp uses the window's first token as the key of the first column, not the pending token.
TEST(Lookahead, TheFirstColumnIsKeyedByThePendingToken) {
  EXPECT_GT(misspelled(1, {{"emulate", "llama_cpp"}}), 0);
}

TEST(Lookahead, AFullMatchGivesNTokens) {
  const std::vector<Token> prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto most = [&](const json& more) {
    json options = {{"W", 4}, {"N", 4}, {"G", 4}};
    options.update(more);
    LookaheadByHand hand(options, prompt, plus_one);
    int most = 0;
    for (int i = 0; i < 30; ++i) most = std::max(most, hand.step());
    return most;
  };
  EXPECT_EQ(most(json::object()), 4);
  EXPECT_EQ(most({{"full_match_bonus", false}}), 3);
  EXPECT_EQ(most({{"emulate", "lade"}}), 3);  // stops one short
  EXPECT_EQ(most({{"emulate", "llama_cpp"}}), 4);
}

TEST(Lookahead, BigramsWork) {  // an index past the window in the original
  LookaheadByHand hand({{"W", 4}, {"N", 2}, {"G", 4}}, {1, 2, 3}, plus_one);
  int most = 0;
  for (int i = 0; i < 30; ++i) {
    most = std::max(most, hand.step());
    EXPECT_EQ(hand.draft.tree.size() - 1 - hand.draft.tree.drafted(), 3);
  }
  EXPECT_EQ(most, 2);
  try {
    Resources resources;
    resources.target = tiny_target();
    choose("lookahead", {{"N", 2}, {"emulate", "lade"}}).make(resources);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("N of at least 3"));
  }
}

TEST(Lookahead, TheTextItselfGoesIntoThePool) {
  // Two alternating phrases that no window of one column can predict.
  const std::vector<Token> prompt{5, 6, 7, 8, 1, 2, 3, 4, 5};
  LookaheadByHand hand(
      {{"W", 0}, {"N", 3}, {"G", 4}, {"pool_from_prompt", true}}, prompt,
      [](const std::vector<Token>& text) { return static_cast<Token>((text.size() * 3) % 17); });
  const auto grams = [&](Token key) {
    std::set<std::vector<Token>> out;
    const auto& text = hand.text();
    for (std::size_t i = 0; i + 2 < text.size(); ++i) {
      if (text[i] == key) out.insert({text[i + 1], text[i + 2]});
    }
    return out;
  };
  for (int i = 0; i < 25; ++i) {
    const auto wanted = grams(hand.text().back());
    hand.step();
    EXPECT_EQ(hand.guesses(), wanted);
    EXPECT_EQ(hand.draft.tree.size(), 1 + hand.draft.tree.drafted());
  }
}

TEST(Lookahead, GuessesOfAStepCanBeFewerThanThePoolHolds) {
  LookaheadByHand all({{"W", 6}, {"N", 3}, {"G", 8}}, {3, 1, 4, 1, 5}, scrambled),
      few({{"W", 6}, {"N", 3}, {"G", 8}, {"V", 1}}, {3, 1, 4, 1, 5}, scrambled);
  std::size_t most_all = 0, most_few = 0;
  for (int i = 0; i < 60; ++i) {
    all.step();
    few.step();
    most_all = std::max(most_all, all.guesses().size());
    most_few = std::max(most_few, few.guesses().size());
  }
  EXPECT_GT(most_all, 1u);
  EXPECT_EQ(most_few, 1u);
}

TEST(Lookahead, EqualBeginningsShareTheirNodes) {
  LookaheadByHand hand({{"W", 8}, {"N", 4}, {"G", 8}}, {3, 1, 4, 1, 5}, phrases, 400);
  for (int i = 0; i < 60; ++i) {
    hand.step();
    const TokenTree& tree = hand.draft.tree;
    std::set<std::pair<int, Token>> children;
    for (int node = 1; node <= tree.drafted(); ++node)
      EXPECT_TRUE(children.insert({tree.parent(node), tree.token(node)}).second);
  }
}

TEST(Lookahead, ThePoolIsForgottenUnlessItIsKept) {
  for (const bool keep : {false, true}) {
    LookaheadByHand hand({{"W", 0}, {"N", 3}, {"G", 8}, {"pool_from_prompt", true}, {"keep_pool", keep}},
                         {1, 2, 3, 4}, plus_one);
    hand.step();
    hand.begin({19, 0});  // 0 -> 1
    hand.step();
    EXPECT_EQ(hand.guesses().size(), keep ? 1u : 0u);
  }
}

}  // namespace
}  // namespace speclab::lookahead_guesses_test
