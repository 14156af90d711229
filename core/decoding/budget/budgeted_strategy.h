#pragma once

#include <memory>
#include <vector>

#include "core/decoding/budget/draft_budget.h"
#include "core/decoding/strategy.h"

namespace speclab {

/// A strategy whose drafts a DraftBudget cuts. The strategy inside drafts as it would without a budget, and
/// learns from the draft after the cut. It must not remember nodes of a draft besides the first
/// Draft::must_keep ones.
class BudgetedStrategy final : public Strategy {
 public:
  BudgetedStrategy(std::unique_ptr<Strategy> inside, std::shared_ptr<const StepCosts> costs, int batch)
      : inside_(std::move(inside)),
        budgets_(static_cast<std::size_t>(batch), DraftBudget(std::move(costs))) {}

  int max_nodes() const override { return inside_->max_nodes(); }
  Reads reads() const override { return inside_->reads(); }
  TargetUse target_use() const override { return inside_->target_use(); }
  void observe_prompt(const Sequence& sequence, const PromptStates& states) override {
    inside_->observe_prompt(sequence, states);
  }
  void begin(const Sequence& sequence) override {
    budget(sequence).begin();
    inside_->begin(sequence);
  }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    inside_->draft(sequences, drafts);
    for (std::size_t i = 0; i < sequences.size(); ++i) budget(*sequences[i]).limit(*drafts[i]);
  }
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i)
      budget(*sequences[i])
          .observe(TokenSpan(sequences[i]->tokens).last(static_cast<std::size_t>(outcomes[i].emitted)));
    inside_->observe(sequences, outcomes);
  }
  void halt() override { inside_->halt(); }

 private:
  DraftBudget& budget(const Sequence& sequence) { return budgets_[static_cast<std::size_t>(sequence.slot)]; }

  std::unique_ptr<Strategy> inside_;
  std::vector<DraftBudget> budgets_;  // [batch]
};

}  // namespace speclab
