#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/decoding/rows/distribution.h"
#include "core/decoding/token_tree.h"

namespace speclab {

/// What a strategy proposes for one sequence and one step.
/// q of a node is the distribution that its token was really drawn from, given the earlier draws at the same
/// parent; a node without one is one-hot (a copied token, a top-k child).
struct Draft {
  static constexpr int kOneHot = -1;

  TokenTree tree;               ///< the loop has put the pending token at node 0
  std::vector<int> q_of;        ///< [tree.size()], index into q or kOneHot; entry 0 unused
  std::vector<Distribution> q;  ///< reused between steps; the first `q_used` are valid
  int q_used = 0;
  std::string_view source;  ///< static string: "draft", "lookup", ...; empty when nothing was drafted
  /// Where several sources have nodes in one tree: those from `first` up to the next contribution are of
  /// `source`, a static string. Ascending; empty: all are of Draft::source.
  struct Contribution {
    int first;
    std::string_view source;
  };
  std::vector<Contribution> contributions;
  std::int64_t pool_size =
      -1;  ///< n-grams that the strategy has to copy from, for the record; -1: no such thing
  bool ended_by_schedule = false;  ///< a draft-length rule stopped it before its maximum
  /// Confidence q(x) of each node for the record, -1 where unknown; [tree.size()].
  std::vector<float> confidence;

  void reset(Token pending);
  /// Appends a node with its q (a free Distribution from the pool to be filled by the caller before), or
  /// one-hot.
  int add(Token token, int parent, int q_index = kOneHot, float confidence = -1.0f);
  /// A probe, or a relay; see NodeKind. Every candidate must have been added before.
  int add_probe(Token token, int parent, NodeKind kind = NodeKind::probe);
  Distribution& new_q(int* index);  ///< next free entry of the pool; valid until the next call
  const Distribution* q_at(int node) const { return q_of[node] == kOneHot ? nullptr : &q[q_of[node]]; }
};

}  // namespace speclab
