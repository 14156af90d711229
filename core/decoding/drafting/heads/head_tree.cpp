#include "core/decoding/drafting/heads/head_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/measure/run_result.h"

namespace speclab {
namespace {

/// Reads a tree file: one of this project (kTreeFormat), a list of index paths, or an object with such a list
/// as its member "paths".
TreeShape read_head_tree(const std::string& path) {
  const nlohmann::json file = read_json_file(path);
  if (file.is_array()) return shape_of_paths(read_index_paths(file, path + ": "), path);
  if (file.is_object() && file.contains("paths"))
    return shape_of_paths(read_index_paths(file["paths"], path + ": /paths"), path);
  return TreeShape::of_json(file, path);
}

}  // namespace

void HeadTreeOptions::fields(OptionVisitor& visit) {
  visit("widths", widths, Range<int>{1, TreeShape::kMostDrafted},
        "shape of the drafted tree: number of children of each node, one entry per depth; [1, 1, 1] is a "
        "chain. Empty: the tree that the head comes with, or else a chain over all heads");
  visit("tree", tree,
        "instead of `widths`: a file with any shape. It holds a list of index paths such as [[0], [0, 0], "
        "[1]], as published heads come with (models/trees), or is a tree file of `speclab optimize tree`");
}

TreeShape HeadTreeOptions::shape(const HeadCard& card, int heads, int rows,
                                 const std::string& strategy) const {
  if (!widths.empty() && !tree.empty())
    throw Error({strategy + ": widths, tree", "both", "only one of them", "Leave one of them out."});
  const bool by_card = widths.empty() && tree.empty() && !card.tree.empty();
  const std::string where = !widths.empty() ? strategy + ": widths"
                            : by_card       ? card.weights.string() + ": tree of the head"
                                            : tree;
  TreeShape out = !widths.empty() ? TreeShape::of_widths(widths, where)
                  : !tree.empty() ? read_head_tree(tree)
                  : by_card       ? shape_of_paths(card.tree, where)
                                  : TreeShape::chain(heads);
  if (out.depth() > heads) {
    throw Error({where, fmt::format("a tree of {} levels", out.depth()),
                 fmt::format("at most {} levels in a draft with {}", heads, card.weights.string()),
                 "Use a tree with fewer levels."});
  }
  out.require_children(rows);
  return out;
}

TreeShape shape_of_paths(IndexPaths paths, const std::string& where) {
  std::sort(paths.begin(), paths.end(), [](const std::vector<int>& a, const std::vector<int>& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  std::map<std::vector<int>, int> number{{{}, 0}};
  std::vector<int> parents, ranks;
  for (const std::vector<int>& path : paths) {
    std::vector<int> other(path.begin(), path.end() - 1);
    const auto parent = number.find(other);
    other = path;
    --other.back();
    const bool follows = path.back() == 0 || number.contains(other);
    if (parent == number.end() || !follows || number.contains(path)) {
      throw Error({where, fmt::format("the path [{}]", fmt::join(path, ", ")),
                   number.contains(path)    ? "each path once"
                   : parent == number.end() ? "also the path without its last rank"
                                            : "also the path with a lower last rank",
                   "A tree has all parents and earlier siblings of its nodes."});
    }
    parents.push_back(parent->second);
    ranks.push_back(path.back() + 1);
    number.emplace(path, static_cast<int>(parents.size()));
  }
  return TreeShape::of_lists({{"parents", parents}, {"ranks", ranks}}, where, "", 1);
}

}  // namespace speclab
