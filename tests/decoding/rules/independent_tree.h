#pragma once

#include <vector>

#include "core/decoding/registry.h"

namespace speclab::markov {

/// The tree of a strategy that draws the children of each node independently. Equal children stay two nodes.
struct IndependentShape {
  std::vector<int> widths;  ///< number of children of each node, by depth
  /// A drafted token with a smaller q gets no children. So the shape depends on the drawn tokens, but the
  /// number of children of a node does not depend on them.
  double least = 0;
};

/// A strategy that drafts such trees from a first-order Markov draft model. The entry lives until the program
/// ends.
const StrategyEntry& independent_tree(const IndependentShape& shape);

}  // namespace speclab::markov
