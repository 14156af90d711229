#pragma once

#include <span>
#include <vector>

#include "core/theory/step_costs.h"

/// Predicts the tokens of a step with a drafted tree, and finds the best tree for a machine (Chen et al.
/// 2024, "Sequoia", arXiv 2402.12374, Section 3.1).
///
/// The rank of a child is its place among the children of its parent, in draw order, from 1. The model
/// assumes that the child of rank k at depth d is accepted with the same probability p(d, k) whenever its
/// parent was accepted. The paper's p depends on the rank alone. At most one child of a node is accepted, so
/// the sum of p(d, k) over k is at most 1.
namespace speclab::theory {

/// p(d, k): P(the child of rank k at depth d is accepted, given that its parent was accepted).
class RankAcceptance {
 public:
  /// by_depth[d - 1][k - 1] = p(d, k). The last depth stands for all greater depths. One depth is the paper's
  /// model. Throws Error for an empty list, for numbers outside [0, 1], and for a depth with a sum above 1.
  explicit RankAcceptance(std::vector<std::vector<double>> by_depth);
  double at(int depth, int rank) const;  ///< depth, rank >= 1; 0 for ranks that were not measured
  int ranks() const;                     ///< largest measured rank of all depths
  const std::vector<std::vector<double>>& by_depth() const { return by_depth_; }

 private:
  std::vector<std::vector<double>> by_depth_;
};

/// The nodes of a tree without node 0, the pending token. Entry i is node i + 1. Parents come before
/// children.
struct RankedTree {
  std::vector<int> parents;
  std::vector<int> ranks;
  int nodes() const { return static_cast<int>(parents.size()) + 1; }  ///< with node 0
  int depth() const;
};

/// E[tau] = F(T) = sum over nodes of the product of p(d, k) along the path; node 0 counts 1. Throws Error for
/// a parent that does not come before its child, or a rank below 1.
double tree_expected_tokens(const RankedTree& tree, const RankAcceptance& acceptance);

/// The best trees of every size up to most_nodes, with at most most_depth levels below node 0, by dynamic
/// programming (the paper's Section 3.1, extended to p that depends on the depth). A subtree of n nodes whose
/// root is at depth d is worth
///
///   G(d, n)    = max over b of H(d, n, b),
///   H(d, n, b) = max over m of H(d, n - m, b - 1) + p(d + 1, b) G(d + 1, m),
///
/// where b is the number of children of the root, m the size of the last child's subtree, H(d, 1, 0) = 1.
class TreeSearch {
 public:
  /// Takes O(most_depth * most_nodes^2 * ranks) time. Throws Error unless most_nodes is 1 to 4096 and
  /// most_depth 0 to 4096.
  TreeSearch(const RankAcceptance& acceptance, int most_nodes, int most_depth);
  /// From now on, trees may have this many levels. Subtrees below the measured depths depend only on how many
  /// levels they may have. So one more level of the tree costs one new Level for these subtrees, and only the
  /// Levels of the measured depths are computed again.
  void allow_depth(int most_depth);
  /// F of the best tree with exactly this number of nodes; -infinity if no such tree exists.
  double expected_tokens(int nodes) const { return level(0).worth[static_cast<std::size_t>(nodes)]; }
  /// The best tree with this number of nodes, level by level. Throws Error if no such tree exists.
  RankedTree tree(int nodes) const;

 private:
  /// The best subtrees whose roots are at one depth.
  struct Level {
    std::vector<double> worth;                // [nodes], G
    std::vector<int> children;                // [nodes], the best b
    std::vector<std::vector<int>> last_size;  // [b][nodes], the best m
  };
  Level level_above(const Level& below, int depth) const;
  const Level& level(int depth) const;

  RankAcceptance acceptance_;
  std::size_t sizes_ = 0;  // 1 + most_nodes
  int most_depth_ = 0;
  int measured_;               // the least depth d from which on p(d + 1, k) does not depend on d
  std::vector<Level> upper_;   // [depth], for the depths below min(measured_, most_depth_)
  std::vector<Level> deeper_;  // [number of levels below the subtree's root], for the other depths
};

/// A tree that was chosen for a machine.
struct TreeChoice {
  RankedTree tree;             ///< empty: decode autoregressively
  double expected_tokens = 1;  ///< F
  double speedup = 1;          ///< F / (t(n) + depth c)
};

/// The best tree of every size and depth: one entry for each depth from 1 to most_depth and each n <=
/// most_nodes (rows of the target's forward, with node 0), in this order. Above n = 128 only multiples of 8
/// and most_nodes have entries. An entry is left out if no tree has this size, or if the best tree within
/// this depth has fewer levels, because that tree is the entry of a smaller depth. c is the time of the
/// draft's forward of one level in units of target.at(1), and t(n) = target.ratio(n).
std::vector<TreeChoice> tree_grid(const RankAcceptance& acceptance, const RowTimes& target, double c,
                                  int most_nodes, int most_depth);

/// The entry of tree_grid() with the largest speedup F / (t(n) + depth c) (the paper's Section 3.3), or an
/// empty tree if no speedup exceeds 1. Ties go to the smaller depth, then to fewer nodes.
TreeChoice best_tree(const RankAcceptance& acceptance, const RowTimes& target, double c, int most_nodes,
                     int most_depth);

}  // namespace speclab::theory
