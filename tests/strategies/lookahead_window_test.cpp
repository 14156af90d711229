// The window of lookahead decoding: its size, its shape in the tree, and how it moves.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/strategies/lookahead_by_hand.h"

namespace speclab::lookahead_window_test {
namespace {

using namespace speclab::fixtures;

// Every row sees one token at each offset before its own: level 0 is a chain, and the node in column i of
// level j is at offset i + j below column i of level j - 1.
void expect_window(const TokenTree& tree, int width, int levels) {
  ASSERT_EQ(tree.size() - 1 - tree.drafted(), levels * width - 1);
  int node = tree.drafted() + 1;
  std::vector<int> above{0};
  for (int level = 0; level < levels; ++level) {
    const NodeKind kind = level == levels - 1 ? NodeKind::probe : NodeKind::relay;
    for (int i = level == 0 ? 1 : 0; i < width; ++i, ++node) {
      const auto column = static_cast<std::size_t>(i);
      EXPECT_EQ(tree.parent(node), level == 0 ? above.back() : above[column]);
      EXPECT_EQ(tree.depth(node), i + level);
      EXPECT_EQ(tree.kind(node), kind);
      if (level == 0) above.push_back(node);
      else above[column] = node;
    }
  }
}

TEST(Lookahead, WarmUpAndWindowHaveTheSizesOfThePaper) {
  for (const int W : {1, 2, 5, 9}) {
    for (const int N : {2, 3, 4, 7}) {
      for (const int G : {0, 1, 6}) {
        LookaheadByHand hand({{"W", W}, {"N", N}, {"G", G}}, {3, 1, 4, 1, 5, 9, 2, 6}, phrases);
        for (int i = 0; i < 25; ++i) {
          hand.step();
          const int filled = std::min(
              i + 1, N - 1);  // each of N - 2 steps fills a level; there are W + N - 3 tokens at first
          expect_window(hand.draft.tree, W + N - 1 - filled, filled);
          if (filled < N - 1) {
            EXPECT_EQ(hand.draft.tree.drafted(), 0) << "no guesses while the window fills";
          } else {
            EXPECT_LE(hand.draft.tree.size(), (W + G) * (N - 1));
          }
          EXPECT_LE(hand.draft.tree.drafted(), G * (N - 1));
        }
      }
    }
  }
}

// The next window is the old one without its first level; the predictions are its new last level. Computed by
// hand from the rows alone (Algorithm 2 of the paper).
TEST(Lookahead, TheWindowMovesOnByOneLevel) {
  const int W = 4, N = 4;
  LookaheadByHand hand({{"W", W}, {"N", N}, {"G", 4}}, {3, 1, 4, 1, 5, 9, 2, 6}, phrases);
  for (int i = 0; i < 3; ++i) hand.step();
  for (int i = 0; i < 20; ++i) {
    const auto level = [&](int j, int column) {  // node of the last step
      if (j == 0 && column == 0) return 0;
      return hand.draft.tree.drafted() + (j == 0 ? column : W - 1 + (j - 1) * W + column + 1);
    };
    std::vector<std::vector<Token>> wanted(N - 1);
    for (int j = 1; j < N - 1; ++j) {
      for (int c = 0; c < W; ++c)
        wanted[static_cast<std::size_t>(j - 1)].push_back(hand.draft.tree.token(level(j, c)));
    }
    for (int c = 0; c < W; ++c) wanted[N - 2].push_back(hand.best[static_cast<std::size_t>(level(N - 2, c))]);
    hand.step();
    for (int j = 0; j < N - 1; ++j) {
      for (int c = j == 0 ? 1 : 0; c < W; ++c)
        EXPECT_EQ(hand.draft.tree.token(level(j, c)),
                  wanted[static_cast<std::size_t>(j)][static_cast<std::size_t>(c)])
            << i << j << c;
    }
  }
}

TEST(Lookahead, TheWindowCanTakeOverTheNewestGuess) {
  LookaheadByHand hand({{"W", 4}, {"N", 3}, {"G", 8}, {"pool_from_prompt", true}, {"window_from_pool", true}},
                       {1, 2, 3, 4, 1, 2, 3, 4}, [](const std::vector<Token>& text) {
                         return static_cast<Token>(text.back() % 4 + 1);
                       });
  for (int i = 0; i < 8; ++i) {
    hand.step();
    const TokenTree& tree = hand.draft.tree;
    const int first = tree.drafted();
    EXPECT_EQ(tree.token(first + 1), tree.token(0) % 4 + 1);
    EXPECT_EQ(tree.token(first + 2), tree.token(first + 1) % 4 + 1);
  }
}

TEST(Lookahead, EndTokensDoNotEnterTheWindow) {
  // The text is 1 2 1 2 ...; any other token is followed by 9.
  const auto alternating = [](const std::vector<Token>& text) {
    const Token last = text.back(), before = text[text.size() - 2];
    return last + before == 3 ? before : Token(9);
  };
  const std::vector<Token> eos{9};
  for (const bool ends : {false, true}) {
    LookaheadByHand hand({{"W", 5}, {"N", 3}, {"G", 6}}, {1, 2, 1, 2}, alternating);
    if (ends) hand.sequence().eos = eos;
    int seen = 0;
    for (int i = 0; i < 30; ++i) {
      hand.step();
      for (const Token token : hand.draft.tree.tokens()) seen += token == 9 ? 1 : 0;
    }
    EXPECT_EQ(seen > 0, !ends);
  }
}

TEST(Lookahead, NothingPassesTheEndOfTheContext) {
  for (const int W : {0, 1, 4, 20}) {
    LookaheadByHand hand({{"W", W}, {"N", 5}, {"G", 6}, {"pool_from_prompt", true}}, {1, 2, 3, 4, 5, 6},
                         scrambled, 30);
    int least = 99;
    while (hand.sequence().position() < 30) {  // step() checks the depths
      hand.step();
      least = std::min(least, hand.draft.tree.size() - hand.draft.tree.drafted());
    }
    EXPECT_LE(least, 3);
  }
}

// For all options and context ends: a row sees one row at each offset 0, 1, ... up to its own, and the window
// is fed exactly at its offsets within the context.
TEST(Lookahead, EveryRowSeesOneTokenAtEachOffset) {
  std::mt19937 random(19);
  for (int trial = 0; trial < 40; ++trial) {
    const json options = random_lookahead_options(random);
    const int W = options["W"], N = options["N"];
    SCOPED_TRACE(options.dump());
    LookaheadByHand hand(options,
                         std::vector<Token>(1 + random() % 6, static_cast<Token>(random() % kHandVocab)),
                         trial % 2 == 0 ? phrases : scrambled, 40);
    for (int i = 0; hand.sequence().position() < 39; ++i) {
      const int limit = static_cast<int>(39 - hand.sequence().position());
      hand.step();
      const TokenTree& tree = hand.draft.tree;
      const int levels = std::min(i + 1, N - 1), width = W + N - 1 - levels;
      const bool offered = options["accept_window"] && levels == N - 1;  // level 0 is among the candidates
      std::multiset<int> wanted, fed, wanted_probes, probes;
      for (int level = 0; level < levels; ++level) {
        for (int column = 0; column < width && column + level <= limit; ++column) {
          if (level == 0 && (column == 0 || offered)) continue;
          wanted.insert(column + level);
          if (level == levels - 1) wanted_probes.insert(column + level);
        }
      }
      std::vector<int> path;
      for (int node = 0; node < tree.size(); ++node) {
        tree.path_to(node, path);
        ASSERT_EQ(static_cast<int>(path.size()), tree.depth(node));
        for (std::size_t k = 0; k < path.size(); ++k) EXPECT_EQ(tree.depth(path[k]), static_cast<int>(k) + 1);
        EXPECT_LE(tree.depth(node), limit);
        EXPECT_EQ(tree.kind(node) == NodeKind::candidate, node <= tree.drafted());
        if (node > tree.drafted()) fed.insert(tree.depth(node));
        if (tree.kind(node) == NodeKind::probe) probes.insert(tree.depth(node));
      }
      EXPECT_EQ(fed, wanted);
      EXPECT_EQ(probes, wanted_probes);
    }
  }
}

}  // namespace
}  // namespace speclab::lookahead_window_test
