#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/decoding/drafting/tree_shape.h"

namespace speclab {

/// The trees that a step may draft, and which of them it drafts. The choice depends on the confidence of the
/// draft model after the pending token: the largest probability of its distribution there. This extends the
/// trees of Sequoia (Chen et al. 2024, arXiv 2402.12374, Section 3.1), which are the same in every step.
///
/// The confidence is known before a token is drawn. It depends on the text alone, so the shape of the draft
/// does too. So every lossless rule stays lossless. A shape that depends on a drawn token would not have this
/// property: a rule such as `k_seq` judges a child by the number of its siblings.
class TreesByConfidence {
 public:
  static constexpr int kMostTrees = 64;

  /// The same tree at every confidence. So a TreeShape can be passed where trees are expected.
  TreesByConfidence(TreeShape tree);
  /// The trees of a tree file with one tree (kTreeFormat) or with 1 to kMostTrees (kTreesFormat). Throws
  /// Error, which names the file: for another format or number of trees, for a tree that TreeShape refuses,
  /// for ranges that do not cover 0 to 1 in order without a gap, and when no tree drafts a token.
  static TreesByConfidence read(const std::filesystem::path& path);
  /// As read(), for the contents of a file that the errors call `where`.
  static TreesByConfidence of_json(const nlohmann::json& file, const std::string& where);

  int count() const { return static_cast<int>(trees_.size()); }
  bool several() const { return count() > 1; }
  const TreeShape& tree(int number) const { return trees_[static_cast<std::size_t>(number)]; }
  /// The number of the tree that a step with this confidence drafts; from 0, in ascending order of
  /// confidence.
  int number_at(double confidence) const;
  int nodes() const;  ///< largest number of nodes of a tree, with node 0
  int depth() const;  ///< largest depth of a tree
  /// TreeShape::require_children() for all trees.
  void require_children(int most) const;

 private:
  TreesByConfidence() = default;

  std::vector<TreeShape> trees_;
  std::vector<double> to_;  // [trees], where the range of a tree ends
};

/// A tree file with several trees has {"format": "speclab tree 2", "trees": [{"from", "to", "parents",
/// "ranks", ...}, ...], ...}. "parents" and "ranks" are lists as in kTreeFormat. Here they may be empty: the
/// step then drafts nothing. A step drafts the tree for which from <= confidence < to; the last tree also
/// takes the confidence 1. The ranges are in ascending order, begin at 0, end at 1, and leave no gap. Further
/// members say where the trees come from; reading ignores them.
inline constexpr const char* kTreesFormat = "speclab tree 2";

}  // namespace speclab
