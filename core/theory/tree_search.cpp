#include "core/theory/tree_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

constexpr double kNoTree = -std::numeric_limits<double>::infinity();
constexpr int kMostSize = 4096;
constexpr int kEachSize = 128, kCoarseSize = 8;  // sizes of a grid: all up to 128, then multiples of 8

int require_size(const char* name, int value, int least) {
  if (value < least || value > kMostSize)
    throw Error({name, fmt::format("{}", value), fmt::format("{} to {}", least, kMostSize), ""});
  return value;
}

std::vector<int> depths_of(const RankedTree& tree) {
  std::vector<int> depths = {0};
  for (std::size_t i = 0; i < tree.parents.size(); ++i) {
    const int parent = tree.parents[i];
    if (parent < 0 || parent > static_cast<int>(i) || tree.ranks.at(i) < 1) {
      throw Error({fmt::format("node {} of a tree", i + 1),
                   fmt::format("parent {} and rank {}", parent, tree.ranks.at(i)),
                   fmt::format("a parent from 0 to {} and a rank from 1", i), ""});
    }
    depths.push_back(depths[static_cast<std::size_t>(parent)] + 1);
  }
  return depths;
}

}  // namespace

RankAcceptance::RankAcceptance(std::vector<std::vector<double>> by_depth) : by_depth_(std::move(by_depth)) {
  if (by_depth_.empty()) throw Error({"acceptance by rank", "no numbers", "one list for each depth", ""});
  for (std::size_t depth = 0; depth < by_depth_.size(); ++depth) {
    double sum = 0;
    for (const double p : by_depth_[depth]) sum += require_probability("acceptance by rank", p);
    if (sum > 1 + 1e-9) {
      throw Error({fmt::format("acceptance by rank at depth {}", depth + 1), fmt::format("a sum of {}", sum),
                   "at most 1, because at most one child of a node is accepted", ""});
    }
  }
}

double RankAcceptance::at(int depth, int rank) const {
  SPECLAB_CHECK(depth >= 1 && rank >= 1, "depth {}, rank {}", depth, rank);
  const std::vector<double>& ranks =
      by_depth_[std::min(static_cast<std::size_t>(depth), by_depth_.size()) - 1];
  return static_cast<std::size_t>(rank) > ranks.size() ? 0 : ranks[static_cast<std::size_t>(rank) - 1];
}

int RankAcceptance::ranks() const {
  std::size_t most = 0;
  for (const std::vector<double>& ranks : by_depth_) most = std::max(most, ranks.size());
  return static_cast<int>(most);
}

int RankedTree::depth() const {
  const std::vector<int> depths = depths_of(*this);
  return *std::max_element(depths.begin(), depths.end());
}

double tree_expected_tokens(const RankedTree& tree, const RankAcceptance& acceptance) {
  const std::vector<int> depths = depths_of(tree);
  std::vector<double> reached = {1};
  double sum = 1;
  for (std::size_t i = 0; i < tree.parents.size(); ++i) {
    reached.push_back(reached[static_cast<std::size_t>(tree.parents[i])] *
                      acceptance.at(depths[i + 1], tree.ranks[i]));
    sum += reached.back();
  }
  return sum;
}

TreeSearch::TreeSearch(const RankAcceptance& acceptance, int most_nodes, int most_depth)
    : acceptance_(acceptance), measured_(static_cast<int>(acceptance.by_depth().size()) - 1) {
  require_size("nodes of a tree", most_nodes, 1);
  require_size("depth of a tree", most_depth, 0);
  sizes_ = static_cast<std::size_t>(most_nodes) + 1;
  Level leaves{std::vector<double>(sizes_, kNoTree), std::vector<int>(sizes_, 0), {}};
  leaves.worth[1] = 1;
  deeper_.push_back(std::move(leaves));
  allow_depth(most_depth);
}

void TreeSearch::allow_depth(int most_depth) {
  most_depth_ = require_size("depth of a tree", most_depth, 0);
  while (static_cast<int>(deeper_.size()) <= most_depth - measured_)
    deeper_.push_back(level_above(deeper_.back(), measured_));
  upper_.resize(static_cast<std::size_t>(std::min(measured_, most_depth)));
  for (int depth = static_cast<int>(upper_.size()) - 1; depth >= 0; --depth)
    upper_[static_cast<std::size_t>(depth)] = level_above(level(depth + 1), depth);
}

const TreeSearch::Level& TreeSearch::level(int depth) const {
  if (depth < static_cast<int>(upper_.size())) return upper_[static_cast<std::size_t>(depth)];
  return deeper_[static_cast<std::size_t>(most_depth_ - depth)];
}

TreeSearch::Level TreeSearch::level_above(const Level& under, int depth) const {
  Level out{std::vector<double>(sizes_, kNoTree), std::vector<int>(sizes_, 0), {}};
  out.worth[1] = 1;
  const std::vector<double>& below = under.worth;
  std::vector<double> fewer(sizes_, kNoTree), with(sizes_);  // H with b - 1 and with b children
  fewer[1] = 1;
  out.last_size.emplace_back();  // no child, no last child
  for (int b = 1; b <= acceptance_.ranks(); ++b) {
    const double p = acceptance_.at(depth + 1, b);
    std::vector<int> last(sizes_, 0);
    std::fill(with.begin(), with.end(), kNoTree);
    for (std::size_t n = 2; n < sizes_; ++n) {
      for (std::size_t m = 1; m < n; ++m) {
        if (fewer[n - m] == kNoTree || below[m] == kNoTree) continue;
        const double value = fewer[n - m] + p * below[m];
        if (value > with[n]) with[n] = value, last[n] = static_cast<int>(m);
      }
      if (with[n] > out.worth[n]) out.worth[n] = with[n], out.children[n] = b;
    }
    out.last_size.push_back(std::move(last));
    std::swap(fewer, with);
  }
  return out;
}

RankedTree TreeSearch::tree(int nodes) const {
  if (nodes < 1 || nodes >= static_cast<int>(sizes_) || expected_tokens(nodes) == kNoTree) {
    throw Error({"nodes of a tree", fmt::format("{}", nodes),
                 fmt::format("a number of nodes for which a tree exists, from 1 to {}", sizes_ - 1), ""});
  }
  RankedTree out;
  struct Subtree {
    int node, size, depth;
  };
  std::vector<Subtree> open = {{0, nodes, 0}};
  std::vector<int> sizes;
  for (std::size_t i = 0; i < open.size(); ++i) {
    const Subtree at = open[i];
    sizes.clear();
    int left = at.size;
    const Level& best = level(at.depth);
    for (int b = best.children[static_cast<std::size_t>(at.size)]; b > 0; --b) {
      sizes.push_back(best.last_size[static_cast<std::size_t>(b)][static_cast<std::size_t>(left)]);
      left -= sizes.back();
    }
    std::reverse(sizes.begin(), sizes.end());
    for (std::size_t child = 0; child < sizes.size(); ++child) {
      out.parents.push_back(at.node);
      out.ranks.push_back(static_cast<int>(child) + 1);
      open.push_back({static_cast<int>(out.parents.size()), sizes[child], at.depth + 1});
    }
  }
  return out;
}

std::vector<TreeChoice> tree_grid(const RankAcceptance& acceptance, const RowTimes& target, double c,
                                  int most_nodes, int most_depth) {
  require_non_negative("c", c);
  require_size("nodes of a tree", most_nodes, 1);
  require_size("depth of a tree", most_depth, 0);
  std::vector<TreeChoice> grid;
  TreeSearch search(acceptance, most_nodes, 0);
  for (int depth = 1; depth <= most_depth; ++depth) {
    search.allow_depth(depth);
    for (int nodes = depth + 1; nodes <= most_nodes; ++nodes) {
      if (nodes > kEachSize && nodes % kCoarseSize != 0 && nodes != most_nodes) continue;
      const double tokens = search.expected_tokens(nodes);
      if (tokens == kNoTree) continue;
      RankedTree tree = search.tree(nodes);
      if (tree.depth() < depth) continue;
      grid.push_back({std::move(tree), tokens, tokens / (target.ratio(nodes) + depth * c)});
    }
  }
  return grid;
}

TreeChoice best_tree(const RankAcceptance& acceptance, const RowTimes& target, double c, int most_nodes,
                     int most_depth) {
  TreeChoice best;
  for (TreeChoice& choice : tree_grid(acceptance, target, c, most_nodes, most_depth)) {
    if (choice.speedup > best.speedup) best = std::move(choice);
  }
  return best;
}

}  // namespace speclab::theory
