#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// What a node is fed for. A candidate may be accepted. A probe never is: it is there for its logits, from
/// which a strategy learns (the window of lookahead decoding). A relay is there only to be seen by the probes
/// below it; its logits are not computed.
enum class NodeKind : std::uint8_t { candidate, probe, relay };

/// Drafted tokens as a tree. Node 0 is the pending token: emitted, not yet in the KV cache. Nodes are in
/// topological order (parent < child); children of a node in draw order, duplicates kept. No draft
/// = node 0 alone. Candidates come before all other nodes, and never below one.
class TokenTree {
 public:
  /// Drops everything and makes the pending token node 0.
  void reset(Token pending);
  /// Adds a child and returns its node index.
  int add(Token token, int parent, NodeKind kind = NodeKind::candidate);

  int size() const { return static_cast<int>(tokens_.size()); }
  int drafted() const { return candidates_; }  ///< candidates; they are nodes 1 .. drafted()
  Token token(int node) const { return tokens_[node]; }
  int parent(int node) const { return parents_[node]; }  ///< -1 for node 0
  int depth(int node) const { return depths_[node]; }    ///< 0 for node 0
  NodeKind kind(int node) const { return kinds_[node]; }
  bool wants_row(int node) const { return kinds_[node] != NodeKind::relay; }
  int max_depth() const;        ///< of the candidates
  int max_probe_depth() const;  ///< of the other nodes; 0 without any
  bool is_chain() const;        ///< every node is the child of the one before it

  TokenSpan tokens() const { return tokens_; }                        ///< [size]
  std::span<const std::int32_t> parents() const { return parents_; }  ///< [size]
  /// Children of a node that may be accepted, in draw order, appended to `out` after clearing it.
  void children(int node, std::vector<int>& out) const;
  /// Nodes from depth 1 down to `node`; empty for node 0.
  void path_to(int node, std::vector<int>& out) const;

 private:
  std::vector<Token> tokens_;
  std::vector<std::int32_t> parents_;
  std::vector<std::int32_t> depths_;
  std::vector<NodeKind> kinds_;
  int candidates_ = 0;
};

}  // namespace speclab
