#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "core/theory/tree_costs.h"
#include "core/theory/tree_search.h"

/// Chooses one tree for each kind of step. The kind of a step is known before the step is drafted, for
/// example from the confidence of the draft model (TreesByConfidence in core/decoding). This extends the one
/// tree of Chen et al. 2024 (Sequoia, Section 3).
///
/// Let w_b be the share of the steps that are of kind b. Let F_b be the mean tokens and T_b the mean time of
/// such a step with the tree of kind b. Then the speed of the mixture is
///
///   sum_b w_b F_b / sum_b w_b T_b.
///
/// This is not the mean of the speeds of the kinds. A tree that is slow for its kind may be right: what
/// counts is how long the other steps take for as many tokens. The model assumes that the trees do not change
/// how often each kind occurs.
namespace speclab::theory {

/// The mean tokens of a step with one tree, and its mean time.
struct TreeStep {
  double tokens = 1;
  double time = 1;
};

/// One choice for each kind of step.
struct MixtureChoice {
  std::vector<std::size_t> chosen;  ///< [kinds], index into the choices of the kind
  TreeStep mean;                    ///< over all steps; mean.tokens / mean.time is the speed
};

/// The choices with the largest speed, over all combinations. `weights` are the w_b up to a factor, and
/// choices[b] the steps among which kind b can choose.
///
/// Dinkelbach's method (1967, "On nonlinear fractional programming") finds them without a look at all
/// combinations. For a speed s, each kind takes the choice with the largest tokens - s * time. The speed of
/// these choices is the next s. The speed s rises until no combination is faster.
///
/// Throws Error unless there are as many weights as kinds, each kind has a choice, weights are finite and not
/// negative with a sum above 0, and all tokens and times are finite and positive.
MixtureChoice best_mixture(std::span<const double> weights, std::span<const std::vector<TreeStep>> choices);

/// A kind of step: its share of the steps, and the acceptance of children in such steps.
struct StepKind {
  double weight = 1;
  RankAcceptance acceptance;
};

/// The time of a step that drafts this tree and emits `tokens` on average, in units of an autoregressive
/// step. An empty tree also has a time: the draft model has run to find the kind of the step.
using StepTime = std::function<double(const RankedTree& tree, double tokens)>;

/// t(n) + max(d, 1) c: the time of Chen et al. 2024 for a tree of n nodes and d levels. The first forward of
/// the draft model, which also gives the kind of the step, is the one of the first level.
StepTime forwards_time(RowTimes target, double c);
/// The time from the costs of all parts of a step (tree_step_times). An empty tree costs a forward of the
/// draft model over one row.
StepTime all_costs_time(TreeCosts costs);

/// A tree for each kind, and what the mixture of them is predicted to do.
struct TreeMixture {
  std::vector<RankedTree> trees;  ///< [kinds]; an empty tree: such steps draft nothing
  std::vector<double> tokens;     ///< [kinds], F of these trees
  TreeStep mean;                  ///< over all steps
  double speedup() const { return mean.tokens / mean.time; }
};

/// The mixture with the largest speed among the empty tree and the best trees of the sizes and depths in
/// tree_grid(): every size up to 128 nodes, and above it only multiples of 8 and most_nodes. With
/// forwards_time() no other trees of these sizes are faster, because all trees of one size and depth take the
/// same time. So if most_nodes <= 128, no other trees are faster at all. Throws Error as best_mixture() and
/// tree_grid() do.
TreeMixture best_tree_mixture(std::span<const StepKind> kinds, const StepTime& time, int most_nodes,
                              int most_depth);

/// Mean tokens and mean time of a step of the mixture that drafts these trees, [kinds]. Throws Error as
/// best_mixture() and tree_expected_tokens() do.
TreeStep mixture_step(std::span<const StepKind> kinds, std::span<const RankedTree> trees,
                      const StepTime& time);

}  // namespace speclab::theory
