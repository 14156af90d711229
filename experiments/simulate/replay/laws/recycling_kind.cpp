// The law of token recycling: the k-th candidate of a token is the text's next token with a probability that
// depends on k and on the depth alone. It is the law of trees of Chen et al. 2024 (Sequoia).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/theory/tree_search.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/simulate/replay/laws/law_kind.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 1> kRecyclingTree = {"tree"};
constexpr std::size_t kMostPlaces = 512;  // limit of the strategy token_recycling
constexpr double kLeastReached = 50;      // nodes; with fewer, p of all depths together is used

/// The tree of the options: children of each node in breadth-first order, at most k of them drafted.
theory::RankedTree recycled_tree(const json& options) {
  const std::vector<int> children = options.at("tree");
  const int k = options.at("k");
  theory::RankedTree tree;
  std::vector<int> node_of = {0};  // by place; -1: never drafted
  for (std::size_t place = 0; place < node_of.size() && place < children.size(); ++place) {
    for (int rank = 0; rank < children[place]; ++rank) {
      if (node_of.size() > kMostPlaces) {
        throw Error({.what = "the tree of token recycling",
                     .got = fmt::format("more than {} nodes", kMostPlaces),
                     .expected = fmt::format("at most {}", kMostPlaces),
                     .advice = "Use a smaller tree."});
      }
      const bool drafted = node_of[place] >= 0 && rank < k;
      if (drafted) {
        tree.parents.push_back(node_of[place]);
        tree.ranks.push_back(rank + 1);
      }
      node_of.push_back(drafted ? tree.nodes() - 1 : -1);
    }
  }
  return tree;
}

/// A tree that steps walk down.
struct WalkedTree {
  explicit WalkedTree(const json& options) {
    const theory::RankedTree tree = recycled_tree(options);
    first.assign(static_cast<std::size_t>(tree.nodes()), 0);
    count.assign(static_cast<std::size_t>(tree.nodes()), 0);
    for (std::size_t i = 0; i < tree.parents.size(); ++i) {
      const auto parent = static_cast<std::size_t>(tree.parents[i]);
      if (count[parent]++ == 0) first[parent] = i + 1;
    }
    depth = tree.depth();
  }
  std::vector<std::size_t> first, count;  // [nodes]: first child and number of children of each node
  int depth = 0;
};

/// How often the candidates of a rank could be tested, and how often they were right.
class CandidateCounts {
 public:
  /// Counts a step along its accepted path. A node of the tree counts as wrong if the strategy had no
  /// candidate for it.
  void add(const WalkedTree& tree, const StepRecord& step) {
    std::size_t place = 0;
    int node = 0;
    for (std::size_t depth = 0; tree.count[place] > 0; ++depth) {
      if (counts_.size() <= depth) counts_.resize(depth + 1);
      std::vector<Count>& ranks = counts_[depth];
      if (ranks.size() < tree.count[place]) ranks.resize(tree.count[place]);
      for (std::size_t rank = 0; rank < tree.count[place]; ++rank) ranks[rank].reached += 1;
      std::size_t rank = 0;
      int next = -1;
      for (std::size_t i = 0; i < step.drafted.size() && next < 0; ++i) {
        if (step.drafted[i].parent != node) continue;
        if (step.drafted[i].accepted) next = static_cast<int>(i) + 1;
        else ++rank;
      }
      if (next < 0 || rank >= tree.count[place]) return;
      ranks[rank].right += 1;
      place = tree.first[place] + rank;
      node = next;
    }
  }

  /// p(d, k), scaled so that no sum over k is above 1.
  theory::RankAcceptance acceptance() const {
    std::vector<Count> all;
    for (const std::vector<Count>& ranks : counts_) {
      if (all.size() < ranks.size()) all.resize(ranks.size());
      for (std::size_t k = 0; k < ranks.size(); ++k) {
        all[k].reached += ranks[k].reached;
        all[k].right += ranks[k].right;
      }
    }
    if (all.empty())
      return theory::RankAcceptance(std::vector<std::vector<double>>(1, std::vector<double>(1, 0.0)));
    std::vector<std::vector<double>> by_depth;
    for (const std::vector<Count>& ranks : counts_) {
      std::vector<double>& row = by_depth.emplace_back();
      double sum = 0;
      for (std::size_t k = 0; k < all.size(); ++k) {
        const bool enough = k < ranks.size() && ranks[k].reached >= kLeastReached;
        row.push_back((enough ? ranks[k] : all[k]).share());
        sum += row.back();
      }
      for (double& p : row) p /= std::max(1.0, sum);
    }
    return theory::RankAcceptance(std::move(by_depth));
  }

 private:
  struct Count {
    double reached = 0, right = 0;
    double share() const { return reached > 0 ? right / reached : 0; }
  };
  std::vector<std::vector<Count>> counts_;  // [depth - 1][rank - 1]
};

/// Counts the steps of a turn. The last steps do not count, because the end of the text may cut their trees.
void add_turn(const WalkedTree& tree, const GenerationRecord& turn, CandidateCounts& counts) {
  int left = 0;
  for (const StepRecord& step : turn.steps) left += step.emitted;
  for (const StepRecord& step : turn.steps) {
    if (left <= tree.depth + 1) return;
    counts.add(tree, step);
    left -= step.emitted;
  }
}

bool has_tree(const json& options) {
  return options.contains("tree") && options.contains("k") && !options.value("keep", false) &&
         recycled_tree(options).nodes() > 1;
}

double tree_rows(const json& options) { return recycled_tree(options).nodes(); }

double tree_tokens(const json& options) { return recycled_tree(options).nodes() - 1; }

TauLaw fit_tree(std::span<const CaseData* const> cells, const PromptChoice& prompts) {
  CandidateCounts counts;
  for (const CaseData* data : cells) {
    const WalkedTree tree(data->options());
    for_each_line(*data, 0, [&](std::size_t prompt, const LineRecord& line) {
      if (!prompts(prompt)) return;
      for (const GenerationRecord& turn : line.turns) add_turn(tree, turn, counts);
    });
  }
  const theory::RankAcceptance acceptance = counts.acceptance();
  TauLaw out;
  out.parameters = {{"p", acceptance.by_depth()}};
  out.tau = [acceptance](const json& options) {
    return theory::tree_expected_tokens(recycled_tree(options), acceptance);
  };
  return out;
}

}  // namespace

const LawKind kRecyclingKind = {
    .id = StrategyLaw::candidates,
    .law =
        "tau = sum over the nodes of the tree of the product of p(d, k) along the path (Chen et al. 2024, "
        "Sequoia, Section 3.1); p(d, k) is the probability that the k-th candidate at depth d is right",
    .assumptions =
        "A candidate is right with the same probability in every tree. A candidate whose rank is in no "
        "fitted tree counts as wrong. The end of a text cuts no step. Steps draft the same share of their "
        "tree as in the fitted cases.",
    .setting = kRecyclingTree,
    .least_cells = 1,
    .covers = has_tree,
    .rows = tree_rows,
    .drafted = tree_tokens,
    .fit = fit_tree};

}  // namespace speclab
