#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "core/theory/predictions.h"
#include "core/theory/tree_search.h"
#include "experiments/metrics/run_data.h"

/// Measures how often the children of drafted trees are accepted, by depth and rank, and predicts tau from
/// these acceptances (core/theory/tree_search.h).
namespace speclab {

/// The drafted tokens of a step as a tree. The rank of a node is its place among the children of its parent.
theory::RankedTree ranked_tree(const StepRecord& step);

/// Counts children by depth and rank.
class RankCounts {
 public:
  struct Count {
    double reached = 0;   ///< counted nodes (see add()) that have a child of this rank
    double accepted = 0;  ///< of these, the nodes whose child of this rank was accepted
  };
  /// Counts the children of a node if the step reached the node and the verifier tested one of its children.
  /// If the end of the text cut the step, the children after the cut do not count.
  void add(const StepRecord& step);
  void add(const RankCounts& other);
  void subtract(const RankCounts& other);                                    ///< takes back what was added
  bool empty() const;                                                        ///< no node was reached
  const std::vector<std::vector<Count>>& counts() const { return counts_; }  ///< [depth - 1][rank - 1]

  /// p(k), the acceptance of a child of rank k, from all depths together. Call it only if not empty().
  theory::RankAcceptance by_rank() const;
  /// p(d, k), the acceptance of a child of rank k at depth d. It is p(k) of by_rank() where fewer than kLeast
  /// nodes were reached. Call it only if not empty().
  theory::RankAcceptance by_depth() const;
  static constexpr double kLeast = 50;

 private:
  std::vector<std::vector<Count>> counts_;
};

/// Calls `visit` for each step of the case's first repeat, with the index of its prompt.
void for_each_step(const CaseData& data,
                   const std::function<void(std::size_t prompt, const StepRecord&)>& visit);
/// True if some draft of the case branches and no step feeds probes.
bool drafts_trees(const CaseData& data);
/// The counts of the case's first repeat.
RankCounts rank_counts(const CaseData& data);

/// Predicts tau, and with a calibration also the speedup, of a case that drafts trees. The steps of a prompt
/// are predicted with the acceptance that was measured on the other prompts, so that no step predicts itself.
/// Each step has the tree that the record holds for it. Empty if the case drafts no trees and does not choose
/// among several, or if fewer than two prompts have counts.
///   tree_by_rank (tau): p(k), the assumption of Chen et al. 2024 (Sequoia);
///   tree_by_rank_and_depth (tau): p(d, k);
///   tree_by_confidence (tau), only if the steps drafted one of several trees:
///     p(1, k) is measured in the steps with the same tree,
///     p(d, k) at greater depths in all steps (CountsByKind);
///   tree_speedup (speedup): from p(d, k), t(n) and c;
///   tree_measured_costs (speedup): from p(d, k) and the calibrated costs of all parts of the case's steps.
/// With several trees, the speedups use p of tree_by_confidence.
std::vector<theory::Prediction> tree_predictions(const CaseData& data);

}  // namespace speclab
