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
  /// Returns the shape that an option sets, else the shape of the card, else a chain of `heads` tokens.
  /// `heads` is the number of levels that the head can draft. `rows` is the number of tokens in a row of the
  /// head. `strategy` names the options in errors. Throws Error if the shape is deeper than `heads`, if a
  /// node has more than `rows` children, if both options are set, or if a file or the card has no valid tree.
  TreeShape shape(const HeadCard& card, int heads, int rows, const std::string& strategy) const;
};

/// The shape of the tree with these index paths. Throws Error, which names `where`, unless each path comes
/// once, and its parent and its earlier siblings are paths of the tree too. (A second child without the first
/// one would be a worse choice than the first child alone.)
TreeShape shape_of_paths(IndexPaths paths, const std::string& where);

}  // namespace speclab
