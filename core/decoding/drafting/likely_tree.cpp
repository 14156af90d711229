#include "core/decoding/drafting/likely_tree.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace speclab {

void LikelyTree::add(Token token, int parent, float q, double accepted) {
  SPECLAB_CHECK(parent >= -1 && parent < size(), "a child of node {} of {}", parent, size());
  const double above = parent < 0 ? 1 : at(parent).reach;
  nodes_.push_back({token, parent, q, above * accepted});
}

void LikelyTree::path_to(int node, std::vector<Token>& out) const {
  out.clear();
  for (int on_path = node; on_path >= 0; on_path = at(on_path).parent) out.push_back(at(on_path).token);
  std::reverse(out.begin(), out.end());
}

int LikelyTree::depth(int node) const {
  int depth = 0;
  for (int on_path = node; on_path >= 0; on_path = at(on_path).parent) ++depth;
  return depth;
}

void LikelyTree::sort_from(int first) {
  order_.resize(static_cast<std::size_t>(size() - first));
  std::iota(order_.begin(), order_.end(), first);
  std::sort(order_.begin(), order_.end(), [this](int a, int b) {
    const double x = at(a).reach, y = at(b).reach;
    return x != y ? x > y : a < b;
  });
}

void LikelyTree::keep(int count, Draft& draft) {
  sort_from(0);
  order_.resize(static_cast<std::size_t>(std::min(count, size())));
  std::sort(order_.begin(), order_.end());
  for (const int number : order_) {
    Node& node = at(number);
    node.drafted =
        draft.add(node.token, node.parent < 0 ? 0 : at(node.parent).drafted, Draft::kOneHot, node.q);
  }
}

}  // namespace speclab
