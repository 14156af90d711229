#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Drafted tokens as a tree. Node 0 is the pending token: emitted, not yet in the KV cache. Nodes are in
/// topological order (parent < child); children of a node in draw order, duplicates kept. No draft
/// = node 0 alone.
class TokenTree {
 public:
  /// Drops everything and makes the pending token node 0.
  void reset(Token pending);
  /// Adds a child and returns its node index. A probe is forwarded for its logits and never accepted.
  int add(Token token, int parent, bool probe = false);

  int size() const { return static_cast<int>(tokens_.size()); }
  int drafted() const { return size() > 0 ? size() - 1 : 0; }
  Token token(int node) const { return tokens_[node]; }
  int parent(int node) const { return parents_[node]; }  ///< -1 for node 0
  int depth(int node) const { return depths_[node]; }    ///< 0 for node 0
  bool probe(int node) const { return probes_[node] != 0; }
  int max_depth() const;
  bool is_chain() const;  ///< every node is the child of the one before it

  TokenSpan tokens() const { return tokens_; }                        ///< [size]
  std::span<const std::int32_t> parents() const { return parents_; }  ///< [size]
  /// Children of a node that may be accepted (no probes), in draw order, appended to `out` after clearing it.
  void children(int node, std::vector<int>& out) const;
  /// Nodes from depth 1 down to `node`; empty for node 0.
  void path_to(int node, std::vector<int>& out) const;

 private:
  std::vector<Token> tokens_;
  std::vector<std::int32_t> parents_;
  std::vector<std::int32_t> depths_;
  std::vector<std::uint8_t> probes_;
};

}  // namespace speclab
