#pragma once

#include <vector>

#include "core/theory/tree_mixture.h"
#include "experiments/analysis/trees/tree_acceptance.h"

namespace speclab {

/// Counts the children of drafted trees by kind of step. The kind of a step is known before it is drafted:
/// its range of the draft model's confidence after the pending token, or the number of the tree that this
/// confidence chose.
class CountsByKind {
 public:
  /// Counts a step. A kind below 0 is not known: the step counts only for all kinds together.
  void add(int kind, const StepRecord& step);
  void add(const CountsByKind& other);
  void subtract(const CountsByKind& other);  ///< takes back what was added

  int kinds() const { return static_cast<int>(of_kind_.size()); }
  const RankCounts& all() const { return all_; }
  const RankCounts& of(int kind) const { return of_kind_[static_cast<std::size_t>(kind)].counts; }
  double steps(int kind) const { return of_kind_[static_cast<std::size_t>(kind)].steps; }

  /// p(d, k), the acceptance of a child of rank k at depth d, in steps of this kind. At depth 1 it is
  /// measured in these steps. At other depths, and for a rank with fewer than RankCounts::kLeast reached
  /// nodes, it is measured in all steps together. Call it only if all() is not empty.
  theory::RankAcceptance acceptance(int kind) const;

 private:
  struct Kind {
    double steps = 0;
    RankCounts counts;
  };
  RankCounts all_;
  std::vector<Kind> of_kind_;
};

/// True if the steps of the case drafted one of several trees (StepRecord::tree_number).
bool chooses_trees(const CaseData& data);

}  // namespace speclab
