#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace speclab {

/// The shape of a drafted tree: how many children each node has. The nodes are numbered level by level. Node
/// 0 is the pending token. The children of a node have consecutive numbers, in draw order.
class TreeShape {
 public:
  /// Largest number of tokens that a draft model drafts in one step. With the pending token they are 1,024
  /// rows of the target. A strategy whose trees may have more than 127 says so in Strategy::max_nodes(). A
  /// GPU that judges drafts or runs whole steps takes smaller trees (kMostPlanNodes in core/backend/plan.h).
  static constexpr int kMostDrafted = 1023;

  /// Every node at depth d has widths[d] children (expansion <k1, ..., km>: Miao et al. 2024, Section 3).
  /// Throws Error, which names `where`, for an empty list and for more than kMostDrafted tokens.
  static TreeShape of_widths(std::span<const int> widths, const std::string& where);
  /// A chain of `length` >= 1 tokens.
  static TreeShape chain(int length);
  /// The shape of a tree file (kTreeFormat). Throws Error, which names the file, for another format, when the
  /// parents form no tree, when the ranks of siblings repeat or have gaps, and when the tree has no tokens or
  /// more than kMostDrafted.
  static TreeShape read(const std::filesystem::path& path);
  /// As read(), for the contents of a file that the errors call `where`.
  static TreeShape of_json(const nlohmann::json& file, const std::string& where);
  /// The shape that the members "parents" and "ranks" of `tree` describe. `tree` is at the place `at` of the
  /// file `where`: "" for the whole file, or for example "/trees/0". Throws Error as read() does, but the
  /// tree may have from `least` to kMostDrafted tokens. With 0 tokens the shape is the pending token alone.
  static TreeShape of_lists(const nlohmann::json& tree, const std::string& where, const std::string& at,
                            int least);

  int nodes() const { return static_cast<int>(children_.size()); }  ///< with node 0
  int depth() const { return static_cast<int>(levels_.size()); }    ///< largest depth of a node
  int children(int node) const { return children_[static_cast<std::size_t>(node)]; }
  int first_child(int node) const { return first_child_[static_cast<std::size_t>(node)]; }
  /// Number of children by depth, if all nodes of a depth have the same number.
  std::optional<std::vector<int>> widths() const;
  /// Throws Error, which names the node, if a node has more than `most` children.
  void require_children(int most) const;

 private:
  void number(std::vector<int> children);

  std::string where_;                // for messages
  std::vector<int> children_;        // [nodes]
  std::vector<int> first_child_;     // [nodes]
  std::vector<int> levels_;          // [depth], number of nodes at depth 1, 2, ...
  std::vector<int> number_in_file_;  // [nodes]; empty for a shape that of_lists() did not make
};

/// A tree file has {"format": "speclab tree 1", "parents", "ranks", ...}. Entry i of the lists belongs to
/// node i + 1; node 0 is the pending token. "parents" holds the number of each node's parent, which is
/// smaller than the number of the node. "ranks" says which child of its parent a node is, in draw order, from
/// 1. Further members say where the tree comes from; reading ignores them. A file with several trees has
/// another format (kTreesFormat in trees_by_confidence.h).
inline constexpr const char* kTreeFormat = "speclab tree 1";

}  // namespace speclab
