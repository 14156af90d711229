#include <gtest/gtest.h>

#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/likely_tree.h"

// EAGLE-2's expansion and reranking (Li et al. 2024, arXiv 2406.16858, Section 4) on an example that was
// computed by hand: the best two nodes of a level get two children each, and of ten nodes the best eight are
// drafted.

namespace speclab::likely_tree_test {
namespace {

/// Adds two children and returns the number of the first.
int add_two(LikelyTree& tree, int parent, Token first, float q_first, float q_second) {
  const int number = tree.size();
  tree.add(first, parent, q_first, static_cast<double>(q_first));
  tree.add(first + 1, parent, q_second, static_cast<double>(q_second));
  return number;
}

std::vector<int> best(LikelyTree& tree, int first, int most) {
  tree.sort_from(first);
  return {tree.order().begin(), tree.order().begin() + most};
}

// All probabilities are sums of powers of two, so the products are exact.
//
//   pending -> 10 (3/4), 11 (1/4)
//   10 -> 20 (1/2), 21 (1/4)         reach 3/8, 3/16
//   11 -> 30 (7/8), 31 (1/8)         reach 7/32, 1/32
//   level 2: the best two are 20 (12/32) and 30 (7/32), although 21 (6/32) has a likelier parent
//   20 -> 40 (3/4), 41 (1/8)         reach 9/32, 3/64
//   30 -> 50 (1/2), 51 (3/8)         reach 7/64, 21/256
//
// In 256ths: 10: 192, 20: 96, 40: 72, 11: 64, 30: 56, 21: 48, 50: 28, 51: 21, 41: 12, 31: 8. The best eight
// leave out 41 and 31.
TEST(LikelyTree, TopTwoExpandedAndEightKept) {
  LikelyTree tree;
  add_two(tree, -1, 10, .75f, .25f);
  EXPECT_EQ(best(tree, 0, 2), (std::vector<int>{0, 1}));
  add_two(tree, 0, 20, .5f, .25f);
  add_two(tree, 1, 30, .875f, .125f);
  EXPECT_EQ(best(tree, 2, 2), (std::vector<int>{2, 4}));
  add_two(tree, 2, 40, .75f, .125f);
  add_two(tree, 4, 50, .5f, .375f);
  ASSERT_EQ(tree.size(), 10);
  EXPECT_EQ(tree.at(6).reach, 9. / 32);
  EXPECT_EQ(tree.at(9).reach, 21. / 256);
  EXPECT_EQ(tree.depth(9), 3);
  EXPECT_EQ(tree.depth(-1), 0);
  std::vector<Token> path;
  tree.path_to(9, path);
  EXPECT_EQ(path, (std::vector<Token>{11, 30, 51}));

  Draft draft;
  draft.reset(7);
  tree.keep(8, draft);
  ASSERT_EQ(draft.tree.drafted(), 8);
  const std::vector<Token> tokens(draft.tree.tokens().begin() + 1, draft.tree.tokens().end());
  EXPECT_EQ(tokens, (std::vector<Token>{10, 11, 20, 21, 30, 40, 50, 51}));
  const std::vector<std::int32_t> parents(draft.tree.parents().begin() + 1, draft.tree.parents().end());
  EXPECT_EQ(parents, (std::vector<std::int32_t>{0, 0, 1, 1, 2, 3, 5, 5}));
  EXPECT_EQ(draft.confidence[8], .375f);
  for (int node = 1; node <= 8; ++node) EXPECT_EQ(draft.q_at(node), nullptr) << "no token was drawn";
  EXPECT_EQ(tree.at(5).drafted, 0);  // 31
  EXPECT_EQ(tree.at(9).drafted, 8);
}

// So many nodes that a sort that is not stable would move equal ones.
TEST(LikelyTree, AmongEqualsParentsComeFirst) {
  LikelyTree tree;
  for (int node = 0; node < 60; ++node) tree.add(node, node - 1, 1, 1);
  Draft draft;
  draft.reset(0);
  tree.keep(30, draft);
  ASSERT_EQ(draft.tree.drafted(), 30);
  for (int node = 1; node <= 30; ++node) {
    EXPECT_EQ(draft.tree.token(node), node - 1);
    EXPECT_EQ(draft.tree.parent(node), node - 1);
  }
  EXPECT_THROW(tree.add(60, 60, 1, 1), Bug);
  tree.clear();
  draft.reset(0);
  tree.keep(5, draft);
  EXPECT_EQ(draft.tree.drafted(), 0);
}

}  // namespace
}  // namespace speclab::likely_tree_test
