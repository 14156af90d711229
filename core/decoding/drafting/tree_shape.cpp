#include "core/decoding/drafting/tree_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/measure/run_result.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr const char* kMakeTree = "Make a tree file with speclab optimize tree.";

/// A list of whole numbers of a tree. `place` is the file and the place of the tree in it.
std::vector<int> numbers_of(const json& tree, const char* name, const std::string& place) {
  const std::string at = fmt::format("{}/{}", place, name);
  const auto found = tree.find(name);
  if (found == tree.end() || !found->is_array())
    throw Error({at, found == tree.end() ? "nothing" : found->dump(), "a list of whole numbers", kMakeTree});
  std::vector<int> out;
  for (const json& entry : *found) {
    const bool whole = entry.is_number_integer();
    const auto number = whole ? entry.get<std::int64_t>() : 0;
    if (!whole || number < 0 || number > TreeShape::kMostDrafted) {
      throw Error({fmt::format("{}/{}", at, out.size()),
                   fmt::format("{} for node {}", entry.dump(), out.size() + 1),
                   fmt::format("a whole number from 0 to {}", TreeShape::kMostDrafted), kMakeTree});
    }
    out.push_back(static_cast<int>(number));
  }
  return out;
}

}  // namespace

TreeShape TreeShape::of_widths(std::span<const int> widths, const std::string& where) {
  std::int64_t level = 1, nodes = 0;
  for (const int width : widths) {
    level *= width;
    nodes += level;
    if (nodes > kMostDrafted) break;
  }
  if (nodes == 0 || nodes > kMostDrafted) {
    throw Error({where, nodes == 0 ? "no widths" : fmt::format("more than {} tokens", kMostDrafted),
                 fmt::format("1 to {} tokens", kMostDrafted), "Use fewer children or less depth."});
  }
  std::vector<int> children;
  std::size_t on_level = 1;
  for (const int width : widths) {
    children.insert(children.end(), on_level, width);
    on_level *= static_cast<std::size_t>(width);
  }
  children.insert(children.end(), on_level, 0);
  TreeShape shape;
  shape.where_ = where;
  shape.number(std::move(children));
  return shape;
}

TreeShape TreeShape::chain(int length) {
  SPECLAB_CHECK(length >= 1, "a chain of {} tokens", length);
  std::vector<int> children(static_cast<std::size_t>(length), 1);
  children.push_back(0);
  TreeShape shape;
  shape.where_ = "a chain";
  shape.number(std::move(children));
  return shape;
}

TreeShape TreeShape::read(const std::filesystem::path& path) {
  return of_json(read_json_file(path), path.string());
}

TreeShape TreeShape::of_json(const json& file, const std::string& where) {
  if (!file.is_object() || file.value("format", json()) != kTreeFormat) {
    throw Error(
        {where, "a file of another format", fmt::format("\"format\": \"{}\"", kTreeFormat), kMakeTree});
  }
  return of_lists(file, where, "", 1);
}

TreeShape TreeShape::of_lists(const json& tree, const std::string& where, const std::string& at, int least) {
  const std::string place = fmt::format("{}: {}", where, at);
  const std::vector<int> parents = numbers_of(tree, "parents", place),
                         ranks = numbers_of(tree, "ranks", place);
  const std::string named = at.empty() ? where : place;
  if (parents.size() != ranks.size()) {
    throw Error({named, fmt::format("{} parents and {} ranks", parents.size(), ranks.size()),
                 "one parent and one rank for each node", kMakeTree});
  }
  const int drafted = static_cast<int>(parents.size());
  if (drafted < least || drafted > kMostDrafted) {
    throw Error({fmt::format("{}/parents", place), fmt::format("{} nodes", drafted),
                 fmt::format("{} to {} nodes", least, kMostDrafted), kMakeTree});
  }
  // children[node][rank - 1] is a node of the file, or 0 until this node is found.
  std::vector<std::vector<int>> children(parents.size() + 1);
  for (int node = 1; node <= drafted; ++node) {
    const auto i = static_cast<std::size_t>(node - 1);
    if (parents[i] >= node) {
      throw Error({fmt::format("{}/parents/{}", place, i),
                   fmt::format("node {} is a child of node {}", node, parents[i]),
                   fmt::format("a parent from 0 to {}, because parents come before their children", node - 1),
                   kMakeTree});
    }
    std::vector<int>& siblings = children[static_cast<std::size_t>(parents[i])];
    const auto rank = static_cast<std::size_t>(ranks[i]);
    if (rank > siblings.size()) siblings.resize(rank, 0);
    if (rank < 1 || siblings[rank - 1] != 0) {
      throw Error({fmt::format("{}/ranks/{}", place, i), fmt::format("rank {} of node {}", rank, node),
                   rank < 1 ? "ranks from 1"
                            : fmt::format("another rank than that of node {}, which has the same parent",
                                          siblings[rank - 1]),
                   kMakeTree});
    }
    siblings[rank - 1] = node;
  }
  for (std::size_t node = 0; node < children.size(); ++node) {
    const auto gap = std::find(children[node].begin(), children[node].end(), 0);
    if (gap != children[node].end()) {
      throw Error({fmt::format("{}/ranks", place),
                   fmt::format("node {} has a child of rank {} and none of rank {}", node,
                               children[node].size(), gap - children[node].begin() + 1),
                   "ranks of siblings without gaps", kMakeTree});
    }
  }
  TreeShape shape;
  shape.where_ = named;
  std::vector<int> order = {0}, counts;  // nodes of the file level by level
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::vector<int>& below = children[static_cast<std::size_t>(order[i])];
    counts.push_back(static_cast<int>(below.size()));
    order.insert(order.end(), below.begin(), below.end());
  }
  shape.number_in_file_ = std::move(order);
  shape.number(std::move(counts));
  return shape;
}

void TreeShape::number(std::vector<int> children) {
  children_ = std::move(children);
  int next = 1;
  for (const int count : children_) {
    first_child_.push_back(next);
    next += count;
  }
  SPECLAB_CHECK(next == nodes(), "{} children for {} nodes", next - 1, nodes());
  for (int from = 0, until = 1; from < until;) {
    const int after = until < nodes() ? first_child(until) : nodes();
    from = std::exchange(until, until < nodes() ? after : until);
    if (from < until) levels_.push_back(until - from);
  }
}

std::optional<std::vector<int>> TreeShape::widths() const {
  std::vector<int> out;
  int first = 0;
  for (int level = 0; level < depth(); ++level) {
    const int last = level == 0 ? 1 : first + levels_[static_cast<std::size_t>(level) - 1];
    for (int node = first; node < last; ++node) {
      if (children(node) != children(first)) return std::nullopt;
    }
    out.push_back(children(first));
    first = last;
  }
  return out;
}

void TreeShape::require_children(int most) const {
  for (int node = 0; node < nodes(); ++node) {
    if (children(node) <= most) continue;
    const int number = number_in_file_.empty() ? node : number_in_file_[static_cast<std::size_t>(node)];
    throw Error({where_, fmt::format("node {} with {} children", number, children(node)),
                 fmt::format("at most {}, the number of tokens that the draft can draw", most),
                 "Use a tree with fewer children."});
  }
}

}  // namespace speclab
