#include "core/decoding/loop/executors/divided_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "core/decoding/drafting/draft.h"
#include "core/decoding/drafting/lookahead_window.h"
#include "core/theory/lookahead.h"

namespace speclab::divided_tree_test {
namespace {

/// Checks a division. Every device feeds the accepted tokens as a chain, then its nodes with the same paths
/// as in the tree. It returns the rows of the candidates that it feeds. One device returns the row of each
/// probe, none that of a relay.
void expect_whole(const TokenTree& tree, TokenSpan accepted, DividedTree& divided) {
  std::multiset<int> given;
  std::set<int> fed;
  for (const DividedTree::Part& part : divided.parts()) {
    ASSERT_EQ(part.nodes.front(), 0);
    ASSERT_EQ(part.tokens.size(), accepted.size() + part.nodes.size());
    ASSERT_EQ(part.parents.size(), part.tokens.size());
    for (std::size_t i = 0; i <= accepted.size(); ++i) EXPECT_EQ(part.parents[i], static_cast<int>(i) - 1);
    EXPECT_TRUE(std::ranges::equal(accepted, TokenSpan(part.tokens).first(accepted.size())));
    std::set<int> rows;
    for (const int row : part.rows)
      rows.insert(part.nodes.at(static_cast<std::size_t>(row) - accepted.size()));
    EXPECT_EQ(rows.size(), part.rows.size());
    EXPECT_TRUE(std::ranges::is_sorted(part.rows));
    given.insert(rows.begin(), rows.end());
    fed.insert(part.nodes.begin(), part.nodes.end());
    for (std::size_t i = 0; i < part.nodes.size(); ++i) {
      const int node = part.nodes[i];
      EXPECT_EQ(part.tokens[accepted.size() + i], tree.token(node));
      if (i > 0) {
        const auto parent = static_cast<std::size_t>(part.parents[accepted.size() + i]);
        EXPECT_EQ(part.nodes.at(parent - accepted.size()), tree.parent(node));
      }
      if (tree.kind(node) == NodeKind::candidate) {
        EXPECT_TRUE(rows.contains(node));
      }
    }
  }
  for (int node = 0; node < tree.size(); ++node) {
    if (tree.kind(node) == NodeKind::candidate) {
      EXPECT_TRUE(fed.contains(node));
    }
    if (tree.kind(node) == NodeKind::probe) {
      EXPECT_EQ(given.count(node), 1u) << node << " of " << tree.size();
    }
    if (tree.kind(node) == NodeKind::relay) {
      EXPECT_EQ(given.count(node), 0u) << node << " of " << tree.size();
    }
  }
}

TEST(DividedTree, WindowsAndGuessesAsTheTheoryDealsThemOut) {
  const int W = 15, N = 5, G = 15;  // guesses without a common prefix
  LookaheadWindow window(W, N - 1);
  window.start_full([](int draw) { return static_cast<Token>(draw); });
  Draft draft;
  draft.reset(7);
  for (int guess = 0; guess < G; ++guess) {
    for (int node = 0, k = 0; k < N - 1; ++k) node = draft.add(static_cast<Token>(100 * guess + k), node);
  }
  window.feed(draft, 1000);
  DividedTree divided;
  for (int devices = 1; devices <= 8; ++devices) {
    divided.assign(draft.tree, {}, devices);
    expect_whole(draft.tree, {}, divided);
    const std::vector<int> rows = theory::lookahead_device_rows({W, N, G}, devices);
    ASSERT_EQ(divided.parts().size(), rows.size());
    for (std::size_t d = 0; d < rows.size(); ++d)
      EXPECT_EQ(static_cast<int>(divided.parts()[d].tokens.size()), rows[d]) << d << " of " << devices;
  }
}

TEST(DividedTree, RandomTrees) {
  std::mt19937 random(5);
  DividedTree divided;
  for (int trial = 0; trial < 300; ++trial) {
    Draft draft;
    draft.reset(1);
    for (int n = static_cast<int>(random() % 12); n > 0; --n)
      draft.add(static_cast<Token>(random() % 50),
                static_cast<int>(random() % static_cast<unsigned>(draft.tree.size())));
    const int width = static_cast<int>(random() % 6), levels = static_cast<int>(1 + random() % 4);
    LookaheadWindow window(width, levels);
    window.start_full([](int draw) { return static_cast<Token>(draw); });
    window.feed(draft, 1000);
    const std::vector<Token> accepted(random() % 4, 17);
    divided.assign(draft.tree, accepted, static_cast<int>(1 + random() % 9));
    expect_whole(draft.tree, accepted, divided);
  }
}

}  // namespace
}  // namespace speclab::divided_tree_test
