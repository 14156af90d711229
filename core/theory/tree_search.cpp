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

TreeSearch::TreeSearch(const RankAcceptance& acceptance, int most_nodes, int most_depth) {
  require_size("nodes of a tree", most_nodes, 1);
  require_size("depth of a tree", most_depth, 0);
  const auto sizes = static_cast<std::size_t>(most_nodes) + 1;
  const auto levels = static_cast<std::size_t>(most_depth) + 1;
  worth_.assign(levels, std::vector<double>(sizes, kNoTree));
  children_.assign(levels, std::vector<int>(sizes, 0));
  last_size_.assign(levels, {});
  for (std::size_t depth = levels; depth-- > 0;) {
    std::vector<double>& worth = worth_[depth];
    worth[1] = 1;
    if (depth + 1 == levels) continue;
    const std::vector<double>& below = worth_[depth + 1];
    std::vector<double> fewer(sizes, kNoTree), with(sizes);  // H with b - 1 and with b children
    fewer[1] = 1;
    last_size_[depth].emplace_back();  // no child, no last child
    for (int b = 1; b <= acceptance.ranks(); ++b) {
      const double p = acceptance.at(static_cast<int>(depth) + 1, b);
      std::vector<int> last(sizes, 0);
      std::fill(with.begin(), with.end(), kNoTree);
      for (std::size_t n = 2; n < sizes; ++n) {
        for (std::size_t m = 1; m < n; ++m) {
          if (fewer[n - m] == kNoTree || below[m] == kNoTree) continue;
          const double value = fewer[n - m] + p * below[m];
          if (value > with[n]) with[n] = value, last[n] = static_cast<int>(m);
        }
        if (with[n] > worth[n]) worth[n] = with[n], children_[depth][n] = b;
      }
      last_size_[depth].push_back(std::move(last));
      std::swap(fewer, with);
    }
  }
}

RankedTree TreeSearch::tree(int nodes) const {
  if (nodes < 1 || nodes >= static_cast<int>(worth_[0].size()) || expected_tokens(nodes) == kNoTree) {
    throw Error({"nodes of a tree", fmt::format("{}", nodes),
                 fmt::format("a number of nodes for which a tree exists, from 1 to {}", worth_[0].size() - 1),
                 ""});
  }
  RankedTree out;
  struct Subtree {
    int node, size;
    std::size_t depth;
  };
  std::vector<Subtree> open = {{0, nodes, 0}};
  std::vector<int> sizes;
  for (std::size_t i = 0; i < open.size(); ++i) {
    const Subtree at = open[i];
    sizes.clear();
    int left = at.size;
    for (int b = children_[at.depth][static_cast<std::size_t>(at.size)]; b > 0; --b) {
      sizes.push_back(last_size_[at.depth][static_cast<std::size_t>(b)][static_cast<std::size_t>(left)]);
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
  for (int depth = 1; depth <= most_depth; ++depth) {
    const TreeSearch search(acceptance, most_nodes, depth);
    for (int nodes = depth + 1; nodes <= most_nodes; ++nodes) {
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
