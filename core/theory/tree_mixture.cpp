#include "core/theory/tree_mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

void require_mixture(std::span<const double> weights, std::span<const std::vector<TreeStep>> choices) {
  if (weights.size() != choices.size() || weights.empty()) {
    throw Error({"kinds of steps",
                 fmt::format("{} weights, choices for {} kinds", weights.size(), choices.size()),
                 "a weight and choices for each kind", ""});
  }
  double sum = 0;
  for (const double weight : weights) sum += require_non_negative("weight of a kind of step", weight);
  require_positive("sum of the weights of kinds of steps", sum);
  for (const std::vector<TreeStep>& of_kind : choices) {
    if (of_kind.empty()) throw Error({"choices of a kind of step", "none", "at least one", ""});
    for (const TreeStep& step : of_kind) {
      require_positive("tokens of a step", step.tokens);
      require_positive("time of a step", step.time);
    }
  }
}

TreeStep mean_step(std::span<const double> weights, std::span<const std::vector<TreeStep>> choices,
                   std::span<const std::size_t> chosen) {
  TreeStep mean{.tokens = 0, .time = 0};
  double sum = 0;
  for (std::size_t kind = 0; kind < weights.size(); ++kind) {
    const TreeStep& step = choices[kind][chosen[kind]];
    mean.tokens += weights[kind] * step.tokens;
    mean.time += weights[kind] * step.time;
    sum += weights[kind];
  }
  mean.tokens /= sum;
  mean.time /= sum;
  return mean;
}

}  // namespace

MixtureChoice best_mixture(std::span<const double> weights, std::span<const std::vector<TreeStep>> choices) {
  require_mixture(weights, choices);
  MixtureChoice best{.chosen = std::vector<std::size_t>(choices.size(), 0), .mean = {}};
  best.mean = mean_step(weights, choices, best.chosen);
  for (;;) {
    const double speed = best.mean.tokens / best.mean.time;
    MixtureChoice next = best;
    for (std::size_t kind = 0; kind < choices.size(); ++kind) {
      const auto gain = [&](const TreeStep& step) { return step.tokens - speed * step.time; };
      const auto found = std::ranges::max_element(choices[kind], {}, gain);
      next.chosen[kind] = static_cast<std::size_t>(found - choices[kind].begin());
    }
    next.mean = mean_step(weights, choices, next.chosen);
    // At the best speed the gains add up to 0 up to rounding. The search ends when the speed does not rise.
    if (next.mean.tokens / next.mean.time <= speed) return best;
    best = std::move(next);
  }
}

StepTime forwards_time(RowTimes target, double c) {
  require_non_negative("c", c);
  return [target = std::move(target), c](const RankedTree& tree, double) {
    return target.ratio(tree.nodes()) + std::max(tree.depth(), 1) * c;
  };
}

StepTime all_costs_time(TreeCosts costs) {
  require_positive("time of an autoregressive step", costs.t_ar);
  return [costs = std::move(costs)](const RankedTree& tree, double tokens) {
    double time = tree_step_times(tree, tokens, costs).total();
    if (tree.parents.empty()) time += costs.draft.at(1);
    return time / costs.t_ar;
  };
}

TreeMixture best_tree_mixture(std::span<const StepKind> kinds, const StepTime& time, int most_nodes,
                              int most_depth) {
  std::vector<double> weights;
  std::vector<std::vector<TreeStep>> choices;
  std::vector<std::vector<RankedTree>> trees;
  for (const StepKind& kind : kinds) {
    weights.push_back(kind.weight);
    trees.emplace_back(1);  // the empty tree
    choices.push_back(std::vector<TreeStep>{TreeStep{.tokens = 1, .time = time(RankedTree(), 1)}});
    for (TreeChoice& cell : tree_grid(kind.acceptance, RowTimes(), 0, most_nodes, most_depth)) {
      choices.back().push_back({cell.expected_tokens, time(cell.tree, cell.expected_tokens)});
      trees.back().push_back(std::move(cell.tree));
    }
  }
  const MixtureChoice best = best_mixture(weights, choices);
  TreeMixture out;
  out.mean = best.mean;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    out.tokens.push_back(choices[kind][best.chosen[kind]].tokens);
    out.trees.push_back(std::move(trees[kind][best.chosen[kind]]));
  }
  return out;
}

TreeStep mixture_step(std::span<const StepKind> kinds, std::span<const RankedTree> trees,
                      const StepTime& time) {
  SPECLAB_CHECK(kinds.size() == trees.size(), "{} kinds, {} trees", kinds.size(), trees.size());
  std::vector<double> weights;
  std::vector<std::vector<TreeStep>> choices;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const double tokens = tree_expected_tokens(trees[kind], kinds[kind].acceptance);
    weights.push_back(kinds[kind].weight);
    choices.push_back(std::vector<TreeStep>{TreeStep{.tokens = tokens, .time = time(trees[kind], tokens)}});
  }
  return best_mixture(weights, choices).mean;
}

}  // namespace speclab::theory
