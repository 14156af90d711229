#include "core/theory/tree_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/theory/chain.h"
#include "core/theory/tree_costs.h"

namespace speclab::theory::tree_search_test {
namespace {

using Table = std::vector<std::vector<double>>;

const RankAcceptance kGolden(Table(1, {.6, .15, .07, .04, .03, .02, .02, .02}));

/// Calls visit(tree) for every tree with this number of nodes whose siblings have ranks without gaps.
void for_trees(int nodes, const std::function<void(const RankedTree&)>& visit) {
  RankedTree tree;
  std::vector<int> children = {0};
  // Parents in ascending order give each tree once: the nodes are numbered level by level.
  const std::function<void(int)> extend = [&](int first) {
    if (tree.nodes() == nodes) {
      visit(tree);
      return;
    }
    for (int parent = first; parent < tree.nodes(); ++parent) {
      tree.parents.push_back(parent);
      tree.ranks.push_back(++children[static_cast<std::size_t>(parent)]);
      children.push_back(0);
      extend(parent);
      children.pop_back();
      --children[static_cast<std::size_t>(parent)];
      tree.parents.pop_back();
      tree.ranks.pop_back();
    }
  };
  extend(0);
}

/// The sum of the n largest products of p along paths in the infinite tree.
double highest_nodes(const RankAcceptance& p, int nodes) {
  struct Node {
    double f;
    int depth;
    bool operator<(const Node& other) const { return f < other.f; }
  };
  std::priority_queue<Node> open;
  open.push({1, 0});
  double sum = 0;
  for (int i = 0; i < nodes; ++i) {
    const Node node = open.top();
    open.pop();
    sum += node.f;
    for (int rank = 1; rank <= p.ranks(); ++rank)
      open.push({node.f * p.at(node.depth + 1, rank), node.depth + 1});
  }
  return sum;
}

TEST(TreeSearch, HasTheGoldenValues) {
  const std::map<int, double> golden = {{1, 1},      {2, 1.6},     {4, 2.176},  {8, 2.6356},
                                        {16, 3.076}, {32, 3.5097}, {64, 3.9675}};
  const TreeSearch search(kGolden, 64, 63);
  for (const auto& [nodes, f] : golden) {
    EXPECT_NEAR(search.expected_tokens(nodes), f, 5e-5) << nodes;
    EXPECT_NEAR(tree_expected_tokens(search.tree(nodes), kGolden), search.expected_tokens(nodes), 1e-12);
    EXPECT_EQ(search.tree(nodes).nodes(), nodes);
  }
}

TEST(TreeSearch, AChainStaysBelowItsLimit) {
  const TreeSearch chain(RankAcceptance(Table(1, {.6})), 64, 63);
  EXPECT_NEAR(expected_tokens_limit(.6), 2.5, 1e-12);
  EXPECT_LT(chain.expected_tokens(8), 2.5);
  EXPECT_NEAR(chain.expected_tokens(64), 2.5, 1e-12) << "64 nodes";
  EXPECT_GT(TreeSearch(kGolden, 8, 7).expected_tokens(8), 2.5) << "a tree of 8 nodes passes it";
}

TEST(TreeSearch, EqualsTheNodesOfHighestProbabilityWhereRanksFall) {
  const TreeSearch search(kGolden, 64, 63);
  for (int nodes = 1; nodes <= 64; ++nodes)
    EXPECT_NEAR(search.expected_tokens(nodes), highest_nodes(kGolden, nodes), 1e-12) << nodes;
}

// The second rank is better than the first, the third useless, and p depends on the depth.
TEST(TreeSearch, EqualsBruteForce) {
  for (const RankAcceptance& p : {kGolden, RankAcceptance(Table(1, {.2, .5, 0, .25})),
                                  RankAcceptance({{.3, .5}, {.1, .05, .6}, {.9, .1}})}) {
    for (int depth = 0; depth <= 6; ++depth) {
      const TreeSearch search(p, 7, depth);
      for (int nodes = 1; nodes <= 7; ++nodes) {
        double best = -INFINITY;
        int trees = 0;
        for_trees(nodes, [&](const RankedTree& tree) {
          ++trees;
          bool measured = tree.depth() <= depth;
          for (const int rank : tree.ranks) measured = measured && rank <= p.ranks();
          if (measured) best = std::max(best, tree_expected_tokens(tree, p));
        });
        EXPECT_EQ(trees, (std::vector<int>{1, 1, 2, 5, 14, 42, 132})[static_cast<std::size_t>(nodes) - 1]);
        if (best == -INFINITY) EXPECT_EQ(search.expected_tokens(nodes), best);
        else EXPECT_NEAR(search.expected_tokens(nodes), best, 1e-12) << nodes << " " << depth;
        if (best > 0) {
          const RankedTree found = search.tree(nodes);
          EXPECT_LE(found.depth(), depth);
          EXPECT_NEAR(tree_expected_tokens(found, p), best, 1e-12);
        }
      }
    }
  }
}

TEST(TreeSearch, AChainIsEq1) {
  const TreeSearch search(RankAcceptance(Table(1, {.7})), 9, 8);
  for (int nodes = 1; nodes <= 9; ++nodes)
    EXPECT_NEAR(search.expected_tokens(nodes), expected_tokens(.7, nodes - 1), 1e-12);
}

TEST(TreeSearch, TheChosenTreeIsTheFastestOfAll) {
  const RowTimes steep(std::map<int, double>{{1, 10}, {4, 12}, {8, 20}, {64, 200}});
  const TreeChoice choice = best_tree(kGolden, steep, .05, 32, 10);
  EXPECT_NEAR(choice.expected_tokens, tree_expected_tokens(choice.tree, kGolden), 1e-12);
  EXPECT_NEAR(choice.speedup,
              choice.expected_tokens / (steep.ratio(choice.tree.nodes()) + .05 * choice.tree.depth()), 1e-12);
  for (int nodes = 2; nodes <= 7; ++nodes) {
    for_trees(nodes, [&](const RankedTree& tree) {
      EXPECT_LE(tree_expected_tokens(tree, kGolden) / (steep.ratio(nodes) + .05 * tree.depth()),
                choice.speedup + 1e-12);
    });
  }
  EXPECT_LE(choice.tree.nodes(), 7);  // so the comparison above covers the choice
  // Free rows and a free draft: the largest tree. Expensive drafts: no tree.
  EXPECT_EQ(best_tree(kGolden, RowTimes(), 0, 32, 40).tree.nodes(), 32);
  EXPECT_TRUE(best_tree(kGolden, RowTimes(), 2, 32, 10).tree.parents.empty());
  EXPECT_EQ(best_tree(kGolden, RowTimes(), 2, 32, 10).speedup, 1);
}

TEST(TreeGrid, HasTheBestTreeOfEverySizeAndDepth) {
  const RowTimes steep(std::map<int, double>{{1, 10}, {4, 12}, {8, 20}, {64, 200}});
  const std::vector<TreeChoice> grid = tree_grid(kGolden, steep, .05, 12, 12);
  double most = 0;
  std::pair<int, int> before = {0, 0};
  for (const TreeChoice& cell : grid) {
    const int nodes = cell.tree.nodes(), depth = cell.tree.depth();
    EXPECT_LT(before, std::pair(depth, nodes)) << "by depth, then by nodes";
    before = {depth, nodes};
    EXPECT_LE(depth, nodes - 1);
    EXPECT_NEAR(cell.expected_tokens, TreeSearch(kGolden, nodes, depth).expected_tokens(nodes), 1e-12);
    EXPECT_NEAR(cell.expected_tokens, tree_expected_tokens(cell.tree, kGolden), 1e-12);
    EXPECT_NEAR(cell.speedup, cell.expected_tokens / (steep.ratio(nodes) + .05 * depth), 1e-12);
    most = std::max(most, cell.speedup);
  }
  // Eight ranks: depth 1 has 2 to 9 nodes. A deep tree needs a node on each level.
  EXPECT_EQ(std::ranges::count_if(grid, [](const TreeChoice& c) { return c.tree.depth() == 1; }), 8);
  EXPECT_GT(grid.size(), 30u);
  EXPECT_EQ(best_tree(kGolden, steep, .05, 12, 12).speedup, most);
}

TEST(TreeCosts, AStepIsTheSumOfItsParts) {
  const RankedTree tree{.parents = {0, 0, 1, 1, 2, 3}, .ranks = {1, 2, 1, 2, 1, 1}};
  EXPECT_EQ(draft_forward_rows(tree), (std::vector<int>{1, 2, 1}));
  EXPECT_TRUE(draft_forward_rows({}).empty());
  EXPECT_THROW(draft_forward_rows({.parents = {1}, .ranks = {1}}), Error);
  const TreeCosts costs{.t_ar = 11,
                        .target = RowTimes(std::map<int, double>{{1, 10}, {7, 16}}),
                        .draft = RowTimes(std::map<int, double>{{1, 1}, {2, 1.5}}),
                        .draft_step = .25,
                        .draft_token = .01,
                        .accept_step = .2,
                        .accept_token = .1,
                        .other_step = .3,
                        .other_token = .02};
  const StepTimes step = tree_step_times(tree, 2.5, costs);
  EXPECT_NEAR(step.draft, .25 + .06 + 1 + 1.5 + 1, 1e-12);
  EXPECT_NEAR(step.target, 16, 1e-12);
  EXPECT_NEAR(step.accept, .2 + .25, 1e-12);
  EXPECT_NEAR(step.other, .3 + .12, 1e-12);
  EXPECT_EQ(step.t_ar, 11);
  // Without these costs, and with rows that are free for the draft, it is the paper's form.
  const TreeCosts forwards{.t_ar = 10, .target = costs.target, .draft = RowTimes(1)};
  EXPECT_NEAR(measured_cost_speedup(2.5, tree_step_times(tree, 2.5, forwards)), 2.5 / (1.6 + 3 * .1), 1e-12);
}

// The search is deepened level by level. It has the values of a search that starts with this depth.
TEST(TreeSearch, DeepensToTheSameTrees) {
  for (const RankAcceptance& p :
       {kGolden, RankAcceptance({{.5, .3}, {.4, .1, .2}, {.6, .05}, {.3, .3, .3}})}) {
    TreeSearch search(p, 40, 0);
    for (const int depth : {1, 2, 3, 4, 5, 9, 2}) {
      search.allow_depth(depth);
      const TreeSearch fresh(p, 40, depth);
      for (int nodes = 1; nodes <= 40; ++nodes) {
        EXPECT_EQ(search.expected_tokens(nodes), fresh.expected_tokens(nodes)) << depth << " " << nodes;
        if (std::isinf(fresh.expected_tokens(nodes))) continue;
        EXPECT_EQ(search.tree(nodes).parents, fresh.tree(nodes).parents);
        EXPECT_LE(search.tree(nodes).depth(), depth);
        EXPECT_NEAR(tree_expected_tokens(search.tree(nodes), p), search.expected_tokens(nodes), 1e-12);
      }
    }
  }
}

TEST(TreeGrid, HasEachEighthSizeAboveTheSmallOnes) {
  const std::vector<TreeChoice> grid = tree_grid(kGolden, RowTimes(), 0, 1021, 24);
  std::map<int, double> best;  // by size
  for (const TreeChoice& cell : grid) {
    const int nodes = cell.tree.nodes();
    EXPECT_TRUE(nodes <= 128 || nodes % 8 == 0 || nodes == 1021) << nodes;
    best[nodes] = std::max(best[nodes], cell.expected_tokens);
  }
  EXPECT_EQ(best.size(), 127u + (1016 - 128) / 8 + 1);
  for (const int nodes : {64, 128, 136, 512, 1016, 1021}) {
    ASSERT_TRUE(best.contains(nodes)) << nodes;
    EXPECT_NEAR(best[nodes], highest_nodes(kGolden, nodes), 1e-9) << nodes;
  }
}

TEST(TreeSearch, BadArgumentsThrow) {
  EXPECT_THROW(RankAcceptance(Table{}), Error);
  EXPECT_THROW(RankAcceptance(Table(1, {.5, 1.2})), Error);
  EXPECT_THROW(RankAcceptance(Table(1, {.7, .4})), Error);
  EXPECT_THROW(TreeSearch(kGolden, 0, 3), Error);
  EXPECT_THROW(TreeSearch(kGolden, 8, 1).tree(9), Error);
  EXPECT_THROW(TreeSearch(kGolden, 20, 1).tree(10), Error);  // eight ranks give at most nine nodes
  EXPECT_THROW(best_tree(kGolden, RowTimes(), -1, 8, 2), Error);
  EXPECT_THROW(tree_expected_tokens({.parents = {1}, .ranks = {1}}, kGolden), Error);
  EXPECT_THROW(tree_expected_tokens({.parents = {0}, .ranks = {0}}, kGolden), Error);
}

}  // namespace
}  // namespace speclab::theory::tree_search_test
