#pragma once

#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/model/heads/head_card.h"

namespace speclab {

/// Options for the shape of the trees that a head drafts.
struct HeadTreeOptions {
  std::vector<int> widths{};
  std::string tree{};
  void fields(OptionVisitor& visit);
  /// Whether an option sets the shape.
  bool any() const { return !widths.empty() || !tree.empty(); }
  /// The shape: that of the options, else that of the card, else a chain of `heads` tokens. `heads` is the
  /// number of levels that the head can draft. `rows` is the number of tokens that it can draw. `strategy`
  /// names the options in errors. Throws Error if the shape is deeper than `heads`, if a node has more than
  /// `rows` children, or if both options are set.
  TreeShape shape(const HeadCard& card, int heads, int rows, const std::string& strategy) const;
};

/// The shape of a static tree. Throws Error, which names `where`, unless each path comes once, and its
/// parent and its earlier siblings are paths of the tree too. (A rank-2 child without the rank-1 child would
/// be a worse choice than the other way round.)
TreeShape shape_of_paths(IndexPaths paths, const std::string& where);

}  // namespace speclab
