#pragma once

#include <string>
#include <string_view>

#include "core/base/options.h"
#include "core/decoding/budget/budget_options.h"
#include "core/decoding/drafting/heads/head_children.h"
#include "core/decoding/drafting/heads/head_tree.h"
#include "core/decoding/registry.h"

namespace speclab {

/// The options of a strategy that drafts trees of a fixed shape with a trained head.
struct HeadStrategyOptions {
  std::string head{};  ///< folder, see read_head_card()
  HeadTreeOptions tree{};
  HeadChildrenOptions children{};
  CutBudgetOptions budget{};
  void fields(OptionVisitor& visit);
};

/// The texts of a StrategyInfo that differ between these strategies.
struct HeadStrategyTexts {
  std::string_view name, summary, paper, draft_source, criterion, trained;
};
/// Returns the whole description: these texts, and what the strategies have in common. All of them draft
/// trees of a fixed shape. They have the loss class of the acceptance rule, and need the option "head".
StrategyInfo head_strategy_info(const HeadStrategyTexts& own);

}  // namespace speclab
