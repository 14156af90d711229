#include "core/decoding/loop/executors/divided_tree.h"

#include "core/base/error.h"

namespace speclab {

void DividedTree::assign(const TokenTree& tree, TokenSpan accepted, int devices) {
  SPECLAB_CHECK(devices >= 1, "a tree over {} devices", devices);
  const auto nodes = static_cast<std::size_t>(tree.size());
  has_child_.assign(nodes, 0);
  for (int node = 1; node <= tree.drafted(); ++node)
    has_child_[static_cast<std::size_t>(tree.parent(node))] = 1;
  guesses_.clear();
  columns_.clear();
  for (int node = 1; node < tree.size(); ++node) {
    if (node > tree.drafted()) {
      if (tree.kind(node) == NodeKind::probe) columns_.push_back(node);
    } else if (!has_child_[static_cast<std::size_t>(node)]) {
      guesses_.push_back(node);
    }
  }
  used_ = static_cast<std::size_t>(devices);
  if (parts_.size() < used_) parts_.resize(used_);
  for (std::size_t device = 0; device < used_; ++device) {
    constexpr std::int32_t kAbsent = -1, kPresent = 0;
    index_of_.assign(nodes, kAbsent);
    index_of_[0] = kPresent;
    dealt_.assign(nodes, 0);
    for (const auto* all : {&guesses_, &columns_}) {
      for (std::size_t i = all->size() * device / used_; i < all->size() * (device + 1) / used_; ++i) {
        dealt_[static_cast<std::size_t>((*all)[i])] = 1;
        for (int node = (*all)[i]; index_of_[static_cast<std::size_t>(node)] == kAbsent;
             node = tree.parent(node))
          index_of_[static_cast<std::size_t>(node)] = kPresent;
      }
    }
    Part& part = parts_[device];
    part.nodes.clear();
    part.tokens.assign(accepted.begin(), accepted.end());
    part.parents.clear();
    part.rows.clear();
    for (std::size_t i = 0; i <= accepted.size(); ++i)
      part.parents.push_back(static_cast<std::int32_t>(i) - 1);
    for (int node = 0; node < tree.size(); ++node) {
      std::int32_t& index = index_of_[static_cast<std::size_t>(node)];
      if (index == kAbsent) continue;
      index = static_cast<std::int32_t>(part.tokens.size());
      part.nodes.push_back(node);
      part.tokens.push_back(tree.token(node));
      if (node > 0) part.parents.push_back(index_of_[static_cast<std::size_t>(tree.parent(node))]);
      if (tree.kind(node) == NodeKind::candidate || dealt_[static_cast<std::size_t>(node)])
        part.rows.push_back(index);
    }
  }
}

}  // namespace speclab
