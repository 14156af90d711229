#include "core/decoding/token_tree.h"

#include <algorithm>

#include "core/base/error.h"

namespace speclab {

void TokenTree::reset(Token pending) {
  tokens_.assign(1, pending);
  parents_.assign(1, -1);
  depths_.assign(1, 0);
  kinds_.assign(1, NodeKind::candidate);
  candidates_ = 0;
}

int TokenTree::add(Token token, int parent, NodeKind kind) {
  const int node = size();
  SPECLAB_CHECK(parent >= 0 && parent < node, "parent {} of node {}", parent, node);
  if (kind == NodeKind::candidate) {
    SPECLAB_CHECK(candidates_ == node - 1, "candidate {} after a probe", node);
    ++candidates_;
  }
  tokens_.push_back(token);
  parents_.push_back(parent);
  depths_.push_back(depths_[parent] + 1);
  kinds_.push_back(kind);
  return node;
}

void TokenTree::keep(std::span<const char> keep, std::vector<int>& moved) {
  SPECLAB_CHECK(candidates_ == size() - 1, "nodes are removed from a tree with {} probes",
                size() - 1 - candidates_);
  moved.assign(tokens_.size(), 0);
  std::size_t to = 1;  // nodes only move to lower numbers, so nothing is overwritten before it was moved
  for (std::size_t node = 1; node < tokens_.size(); ++node) {
    if (keep[node] == 0) continue;
    moved[node] = static_cast<int>(to);
    tokens_[to] = tokens_[node];
    parents_[to] = moved[static_cast<std::size_t>(parents_[node])];
    depths_[to] = depths_[node];
    kinds_[to++] = kinds_[node];
  }
  tokens_.resize(to);
  parents_.resize(to);
  depths_.resize(to);
  kinds_.resize(to);
  candidates_ = static_cast<int>(to) - 1;
}

int TokenTree::max_depth() const {
  return depths_.empty() ? 0 : *std::max_element(depths_.begin(), depths_.begin() + 1 + candidates_);
}

int TokenTree::max_probe_depth() const {
  return size() <= 1 + candidates_ ? 0 : *std::max_element(depths_.begin() + 1 + candidates_, depths_.end());
}

bool TokenTree::is_chain() const {
  for (int node = 1; node < size(); ++node) {
    if (parents_[node] != node - 1) return false;
  }
  return true;
}

void TokenTree::children(int node, std::vector<int>& out) const {
  out.clear();
  for (int child = node + 1; child <= candidates_; ++child) {
    if (parents_[child] == node) out.push_back(child);
  }
}

int TokenTree::child(int parent, Token token) const {
  for (int node = parent + 1; node <= candidates_; ++node) {
    if (parents_[node] == parent && tokens_[node] == token) return node;
  }
  return 0;
}

void TokenTree::path_to(int node, std::vector<int>& out) const {
  out.clear();
  for (; node > 0; node = parents_[node]) out.push_back(node);
  std::reverse(out.begin(), out.end());
}

}  // namespace speclab
