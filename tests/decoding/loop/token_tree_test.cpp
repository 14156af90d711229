#include "core/decoding/token_tree.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/decoding/drafting/draft.h"

namespace speclab::token_tree_test {
namespace {

TEST(TokenTree, ChainHasDepthsAndPaths) {
  TokenTree tree;
  tree.reset(7);
  EXPECT_EQ(tree.size(), 1);
  EXPECT_EQ(tree.drafted(), 0);
  EXPECT_TRUE(tree.is_chain());
  EXPECT_EQ(tree.add(8, 0), 1);
  EXPECT_EQ(tree.add(9, 1), 2);
  EXPECT_TRUE(tree.is_chain());
  EXPECT_EQ(tree.max_depth(), 2);
  EXPECT_EQ(tree.parent(0), -1);
  std::vector<int> path;
  tree.path_to(2, path);
  EXPECT_EQ(path, (std::vector<int>{1, 2}));
  tree.path_to(0, path);
  EXPECT_TRUE(path.empty());
}

TEST(TokenTree, ChildrenKeepDrawOrderAndDuplicatesAndDropProbes) {
  TokenTree tree;
  tree.reset(0);
  tree.add(5, 0);
  tree.add(3, 0);
  tree.add(9, 1);
  tree.add(5, 0);
  tree.add(4, 0, NodeKind::probe);
  tree.add(8, 3, NodeKind::relay);
  std::vector<int> children{42};
  tree.children(0, children);
  EXPECT_EQ(children, (std::vector<int>{1, 2, 4}));
  EXPECT_FALSE(tree.is_chain());
  EXPECT_EQ(tree.kind(5), NodeKind::probe);
  EXPECT_EQ(tree.drafted(), 4);
  EXPECT_EQ(tree.size(), 7);
  EXPECT_TRUE(tree.wants_row(5));
  EXPECT_FALSE(tree.wants_row(6));
  EXPECT_EQ(tree.depth(3), 2);
  EXPECT_EQ(tree.max_depth(), 2);
  EXPECT_EQ(tree.max_probe_depth(), 3);
}

TEST(TokenTree, FindsTheFirstCandidateBelowANodeWithAToken) {
  TokenTree tree;
  tree.reset(5);
  tree.add(5, 0);
  tree.add(3, 0);
  tree.add(3, 1);
  tree.add(3, 0);
  tree.add(8, 0, NodeKind::probe);
  EXPECT_EQ(tree.child(0, 5), 1);
  EXPECT_EQ(tree.child(0, 3), 2) << "the first of two children with one token";
  EXPECT_EQ(tree.child(1, 3), 3);
  EXPECT_EQ(tree.child(1, 5), 0) << "the parent's own token is no child";
  EXPECT_EQ(tree.child(0, 8), 0) << "a probe is no candidate";
  EXPECT_EQ(tree.child(4, 3), 0) << "a leaf has no children";
}

TEST(TokenTree, ResetForgets) {
  TokenTree tree;
  tree.reset(0);
  tree.add(1, 0);
  tree.reset(2);
  EXPECT_EQ(tree.size(), 1);
  EXPECT_EQ(tree.token(0), 2);
}

TEST(TokenTree, RefusesAnUnknownParentAndACandidateBehindAProbe) {
  TokenTree tree;
  tree.reset(0);
  EXPECT_THROW(tree.add(1, 1), Bug);
  EXPECT_THROW(tree.add(1, -1), Bug);
  const int probe = tree.add(1, 0, NodeKind::probe);
  EXPECT_THROW(tree.add(2, probe), Bug);
  EXPECT_THROW(tree.add(2, 0), Bug);
  EXPECT_NO_THROW(tree.add(2, probe, NodeKind::relay));
}

TEST(Draft, PoolsItsRowsAndKnowsWhichNodeHasOne) {
  Draft draft;
  draft.reset(1);
  int index = -1;
  draft.new_q(&index).assign_one_hot(2, 4);
  EXPECT_EQ(index, 0);
  const int a = draft.add(2, 0, index, .5f);
  const int b = draft.add(3, a);
  const int c = draft.add_probe(0, b);
  EXPECT_EQ(draft.q_at(a)->argmax(), 2);
  EXPECT_EQ(draft.q_at(b), nullptr);
  EXPECT_EQ(draft.confidence[a], .5f);
  EXPECT_EQ(draft.confidence[b], -1);
  EXPECT_EQ(draft.tree.kind(c), NodeKind::probe);
  EXPECT_THROW(draft.add_probe(0, b, NodeKind::candidate), Bug);
  EXPECT_EQ(draft.q_of.size(), 4u);
  EXPECT_THROW(draft.add(0, 0, 1), Bug);
  draft.reset(1);
  EXPECT_EQ(draft.q_used, 0);
  EXPECT_EQ(draft.q.size(), 1u);  // the pool is kept
}

// The rows have the bits of separate rows. A row is copied once, when it is first requested.
TEST(Draft, DrawsWithoutReplacementShareARow) {
  Distribution whole, without_two, without_both;
  whole.assign_weights(std::vector<double>{.41, .29, .2, .1});
  without_two = whole;
  without_two.take_out(2);
  without_both = without_two;
  without_both.take_out(0);
  const auto expect_row = [](const Distribution* q, const Distribution& expected) {
    ASSERT_NE(q, nullptr);
    EXPECT_EQ(std::vector<float>(q->weights().begin(), q->weights().end()),
              std::vector<float>(expected.weights().begin(), expected.weights().end()));
    EXPECT_EQ(q->sum(), expected.sum());
    EXPECT_EQ(q->vocab(), expected.vocab());
  };
  Draft draft;
  for (int step = 0; step < 2; ++step) {
    draft.reset(1);
    std::vector<int> nodes;
    for (int family = 0; family < 2; ++family) {
      int row = -1;
      draft.new_q(&row) = whole;
      nodes.push_back(draft.add(2, family, row));
      EXPECT_TRUE(draft.take_out(row, 2));
      nodes.push_back(draft.add(0, family, row));
      EXPECT_TRUE(draft.take_out(row, 0));
      nodes.push_back(draft.add(3, family, row));
      EXPECT_EQ(draft.q[static_cast<std::size_t>(row)].prob(0), 0);
      draft.put_back();
      nodes.push_back(draft.add(1, family));
    }
    EXPECT_EQ(draft.q_used, 2);
    for (const std::size_t first : {std::size_t{4}, std::size_t{0}}) {
      expect_row(draft.q_at(nodes[first]), whole);
      EXPECT_EQ(draft.rows_copied(), first == 4 ? 0u : 2u);
      const Distribution* const second = draft.q_at(nodes[first + 1]);
      expect_row(draft.q_at(nodes[first + 2]), without_both);
      expect_row(second, without_two);
      EXPECT_EQ(draft.q_at(nodes[first + 1]), second);
      EXPECT_EQ(draft.q_at(nodes[first + 3]), nullptr);
      EXPECT_EQ(draft.rows_copied(), first == 4 ? 2u : 4u);
    }
  }
  int one = -1, other = -1;
  draft.new_q(&one).assign_weights(std::vector<double>{0, .5, 0, 0});
  draft.new_q(&other) = whole;
  EXPECT_FALSE(draft.take_out(one, 1)) << "no mass is left";
  EXPECT_THROW(draft.take_out(other, 1), Bug);
  draft.put_back();
  EXPECT_EQ(draft.q[static_cast<std::size_t>(one)].prob(1), 1);
  EXPECT_THROW(draft.take_out(99, 1), Bug);
}

}  // namespace
}  // namespace speclab::token_tree_test
