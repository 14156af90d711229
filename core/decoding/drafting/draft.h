#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/decoding/rows/distribution.h"
#include "core/decoding/token_tree.h"

namespace speclab {

/// The draft of one sequence for one step. The q of a node is the distribution that its token was
/// really drawn from, given the earlier draws at the same parent. A node without q counts as
/// one-hot: its token was not drawn (a copied token, a top-k child).
struct Draft {
  static constexpr int kOneHot = -1;

  TokenTree tree;               ///< the loop puts the pending token at node 0
  std::vector<int> q_of;        ///< [tree.size()], index into q or kOneHot; entry 0 unused
  std::vector<Distribution> q;  ///< reused between steps; the first `q_used` are valid
  int q_used = 0;
  std::string_view source;  ///< static string: "draft", "lookup", ...; empty when nothing was drafted
  /// Marks the nodes of one source in a tree that several sources drafted. The nodes are those from `first`
  /// up to the next contribution. `source` is a static string. The list is in ascending order of `first`. It
  /// is empty when all nodes are from Draft::source.
  struct Contribution {
    int first;
    std::string_view source;
  };
  std::vector<Contribution> contributions;
  std::int64_t pool_size = -1;     ///< n-grams in the strategy's pool, for the record; -1: no pool
  bool ended_by_schedule = false;  ///< a schedule stopped the draft before its maximum
  /// Confidence q(x) of each node, for the record and for budgets; -1: unknown. [tree.size()]
  std::vector<float> confidence;
  /// How good the evidence for the whole draft is, in a measure of the strategy, such as the length of the
  /// match that is continued; 0: unknown. A budget (core/decoding/budget) learns the acceptance for each
  /// value.
  int evidence = 0;
  /// Number of drafted nodes, from node 1 on, that a budget must keep: the tokens of a draft model, which may
  /// have been drawn, or the window's candidates of lookahead decoding.
  int must_keep = 0;

  void reset(Token pending);
  /// Appends a node and returns its index. `q_index` is that of a Distribution from new_q(), which the caller
  /// has filled, or kOneHot.
  int add(Token token, int parent, int q_index = kOneHot, float confidence = -1.0f);
  /// Appends a probe or a relay, see NodeKind. All candidates must have been added before.
  int add_probe(Token token, int parent, NodeKind kind = NodeKind::probe);
  /// Removes the nodes for which `keep` is 0. [tree.size()]; entry 0 is not read. The parent of a kept node
  /// must be kept, and the draft must not have probes.
  void keep(std::span<const char> keep);
  Distribution& new_q(int* index);  ///< next free entry of `q`; the reference is valid until the next call
  const Distribution* q_at(int node) const { return q_of[node] == kOneHot ? nullptr : &q[q_of[node]]; }

 private:
  std::vector<int> moved_;  // scratch of keep(): the new number of each node
};

}  // namespace speclab
