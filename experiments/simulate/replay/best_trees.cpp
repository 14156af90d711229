#include "experiments/simulate/replay/best_trees.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "experiments/simulate/replay/tree_replay.h"

namespace speclab {
namespace {

bool branches_somewhere(const theory::RankedTree& tree) {
  return std::ranges::any_of(tree.ranks, [](int rank) { return rank > 1; });
}

}  // namespace

theory::RankAcceptance acceptance_of_ranks(const RankTrace& trace) {
  std::vector<double> accepted(static_cast<std::size_t>(trace.width), 0.0);
  double positions = 0;
  for (const RankedText& text : trace.texts) {
    for (std::size_t i = 0; i < text.ranks.size() && static_cast<int>(i) < text.depth_limit; ++i) {
      positions += 1;
      const int rank = text.ranks[i];
      if (rank >= 0 && rank < trace.width) accepted[static_cast<std::size_t>(rank)] += 1;
    }
  }
  if (positions > 0) {
    for (double& share : accepted) share /= positions;
  }
  return theory::RankAcceptance(std::vector<std::vector<double>>(1, accepted));
}

TreeShape shape_of(const theory::RankedTree& tree) {
  const nlohmann::json lists = {{"parents", tree.parents}, {"ranks", tree.ranks}};
  return TreeShape::of_lists(lists, "a tree of the search", "", 1);
}

std::vector<ReplayedTree> search_trees(const RankTrace& trace, const theory::TreeCosts& costs, int most_nodes,
                                       int most_depth) {
  std::vector<ReplayedTree> out;
  std::vector<std::size_t> texts(trace.texts.size());
  std::iota(texts.begin(), texts.end(), std::size_t{0});
  const double c = costs.draft.at(1) / costs.target.at(1);
  for (theory::TreeChoice& choice :
       theory::tree_grid(acceptance_of_ranks(trace), costs.target, c, most_nodes, most_depth)) {
    if (!branches_somewhere(choice.tree)) continue;
    const TreeReplayed counts = replay_trees(trace, texts, shape_of(choice.tree));
    if (counts.steps == 0) return {};
    out.push_back({.tree = std::move(choice.tree),
                   .tau = counts.tau(),
                   .speedup = counts.tokens * costs.t_ar / time_of_trees(counts, costs)});
  }
  std::ranges::stable_sort(out, std::ranges::greater(), &ReplayedTree::speedup);
  return out;
}

}  // namespace speclab
