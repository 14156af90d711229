#pragma once

#include <memory>
#include <vector>

#include "core/decoding/budget/step_costs.h"

namespace speclab {

/// The predicted time of a step in which one of several drafters drafts a chain. A drafter is a draft model,
/// or copies tokens of the text. Times come from tables of costs and not from a clock, so a choice by these
/// times follows from config, seed and tables.
class DrafterCosts {
 public:
  /// tables[i]: the table of drafter i. A table without times of a draft model stands for a drafter that
  /// copies, which takes no time. At least one table; all have the same times of the target.
  explicit DrafterCosts(std::vector<std::shared_ptr<const StepCosts>> tables);
  int drafters() const { return static_cast<int>(tables_.size()); }
  /// Time in ns of a step in which `drafter` drafts `drafted` >= 0 tokens: a target forward over drafted + 1
  /// rows, and a forward of the drafter's model for each token. The first forward of the model also reads
  /// `behind` tokens of the text that the model has missed. A step without drafted tokens is a step of the
  /// target alone.
  double step_ns(int drafter, int drafted, int behind = 0) const;
  /// Time in ns of a forward of the drafter's model over one token; 0 for a drafter that copies.
  double token_ns(int drafter) const;
  /// Time in ns in which the models of all drafters except `drafter` read `tokens` tokens of the text: one
  /// forward of each model. 0 for tokens = 0.
  double catch_up_ns(int drafter, int tokens) const;
  /// The largest number of tokens per ns that a step can emit if drafter i drafts at most longest[i] tokens.
  double best_rate(const std::vector<int>& longest) const;

 private:
  const StepCosts& table(int drafter) const { return *tables_[static_cast<std::size_t>(drafter)]; }

  std::vector<std::shared_ptr<const StepCosts>> tables_;
};

}  // namespace speclab
