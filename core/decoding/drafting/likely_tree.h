#pragma once

#include <span>
#include <vector>

#include "core/base/token.h"
#include "core/decoding/drafting/draft.h"

namespace speclab {

/// The tree that a dynamic drafter grows level by level, and the policy of EAGLE-2 (Li et al. 2024, arXiv
/// 2406.16858, Section 4): at each level the most likely nodes get children (expansion), and at the end the
/// most likely nodes of all levels are drafted (reranking). The drafter decides how many. `reach`
/// estimates how likely the target reaches a node. It is the product of the acceptance rates of the tokens on
/// the path to the node. So no node is more likely than its parent, and the kept nodes form a tree.
class LikelyTree {
 public:
  /// A node that may be kept. Parents come before their children.
  struct Node {
    Token token;
    int parent;          ///< number of a node; -1: the pending token
    float q;             ///< the draft's probability of the token
    double reach;        ///< estimated probability that the target reaches the node
    int in_flight = -1;  ///< for the drafter: the node's number among the rows in flight of the draft model
    int drafted = 0;     ///< after keep(): the node's number in the draft; 0: the node was not kept
  };

  void clear() { nodes_.clear(); }
  int size() const { return static_cast<int>(nodes_.size()); }
  const Node& at(int node) const { return nodes_[static_cast<std::size_t>(node)]; }
  Node& at(int node) { return nodes_[static_cast<std::size_t>(node)]; }

  /// Adds a child of `parent`. `accepted`, from 0 to 1, estimates how often the target accepts such a token
  /// if the parent was accepted.
  void add(Token token, int parent, float q, double accepted);
  /// Sets `out` to the tokens from depth 1 down to the node; empty for -1.
  void path_to(int node, std::vector<Token>& out) const;
  int depth(int node) const;  ///< 0 for -1

  /// Puts the nodes from number `first` on into order(), most likely first. Among equals the earlier node
  /// comes first, so a parent comes before its children.
  void sort_from(int first);
  std::span<const int> order() const { return order_; }

  /// Adds the `count` most likely nodes to the draft, with one-hot q and their `q` as confidence. In the
  /// draft they have the order of their numbers. Overwrites order().
  void keep(int count, Draft& draft);

 private:
  std::vector<Node> nodes_;
  std::vector<int> order_;
};

}  // namespace speclab
