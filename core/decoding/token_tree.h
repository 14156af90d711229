#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// The role of a node. A candidate may be accepted. A probe is never accepted: it is fed for its logits, from
/// which a strategy learns (the window of lookahead decoding). A relay is fed only because the probes below
/// it attend to it; its logits are not computed.
enum class NodeKind : std::uint8_t { candidate, probe, relay };

/// Drafted tokens as a tree. Node 0 is the pending token: emitted, but not yet in the KV cache. A tree with
/// node 0 alone is an empty draft. Nodes are in topological order (parent < child). Children of a node are in
/// draw order, and duplicates are kept. Candidates come before all probes and relays, and are never below a
/// probe or relay.
class TokenTree {
 public:
  /// Drops all nodes and makes the pending token node 0.
  void reset(Token pending);
  /// Adds a child and returns its node index.
  int add(Token token, int parent, NodeKind kind = NodeKind::candidate);

  /// Removes the nodes for which `keep`, [size()], is 0; entry 0 is not read. The parent of a kept node must
  /// be kept, and the tree must not have probes. moved[node] becomes the new number of a kept node, and 0 for
  /// a removed one. Allocates nothing if `moved` has room.
  void keep(std::span<const char> keep, std::vector<int>& moved);

  int size() const { return static_cast<int>(tokens_.size()); }
  int drafted() const { return candidates_; }  ///< number of candidates: these are nodes 1 to drafted()
  Token token(int node) const { return tokens_[node]; }
  int parent(int node) const { return parents_[node]; }  ///< -1 for node 0
  int depth(int node) const { return depths_[node]; }    ///< 0 for node 0
  NodeKind kind(int node) const { return kinds_[node]; }
  bool wants_row(int node) const { return kinds_[node] != NodeKind::relay; }
  int max_depth() const;        ///< largest depth of a candidate
  int max_probe_depth() const;  ///< largest depth of a probe or relay; 0 without any
  bool is_chain() const;        ///< whether every node is the child of the one before it

  TokenSpan tokens() const { return tokens_; }                        ///< [size]
  std::span<const std::int32_t> parents() const { return parents_; }  ///< [size]
  /// Sets `out` to the candidates among a node's children, in draw order.
  void children(int node, std::vector<int>& out) const;

  /// The first candidate with this token among the children of `parent`, or 0 if there is none. With it,
  /// copied continuations that begin with the same tokens (copies from the text, n-grams of a pool) can share
  /// nodes. Sharing does not change the distribution of the text: once a child is rejected, no exact rule
  /// accepts a copied child with the same token.
  int child(int parent, Token token) const;
  /// Sets `out` to the nodes from depth 1 down to `node`; empty for node 0.
  void path_to(int node, std::vector<int>& out) const;

 private:
  std::vector<Token> tokens_;
  std::vector<std::int32_t> parents_;
  std::vector<std::int32_t> depths_;
  std::vector<NodeKind> kinds_;
  int candidates_ = 0;
};

}  // namespace speclab
