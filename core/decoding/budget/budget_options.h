#pragma once

#include "core/base/options.h"

/// The option "budget". With "auto", a strategy uses the times of steps (StepCosts) to choose how much it
/// drafts.
namespace speclab {

struct StepCosts;

enum class BudgetRule { fixed, automatic };

/// The option "budget" of strategies that can choose how much they draft. A strategy with a member of this
/// type chooses by itself, before it draws a token (ShapeBudget, DraftSwitch).
struct BudgetOptions {
  BudgetRule rule = BudgetRule::automatic;
  bool automatic() const { return rule == BudgetRule::automatic; }
  void fields(OptionVisitor& visit);
};

/// The option "budget" of strategies whose drafts may be cut after they were made: copies and other tokens
/// that were not drawn. The registry puts such a strategy into a BudgetedStrategy.
struct CutBudgetOptions : BudgetOptions {};

/// Throws Error, which names `strategy`, if there is no table or it has no times of the draft model.
void require_draft_costs(const StepCosts* costs, const char* strategy);
/// Throws Error, which names `strategy`, if there is no table or it has no time of a layer of the target.
void require_layer_costs(const StepCosts* costs, const char* strategy);

}  // namespace speclab
