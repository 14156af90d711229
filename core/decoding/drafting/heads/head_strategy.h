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

/// What is special about such a strategy: the texts of its StrategyInfo that differ from strategy to
/// strategy.
struct HeadStrategyTexts {
  std::string_view name, summary, paper, draft_source, criterion, trained;
};
/// The whole description. What drafts of such strategies have in common is added: a tree of a fixed shape,
/// the loss class of its acceptance rule, and the option "head", which must name a file.
StrategyInfo head_strategy_info(const HeadStrategyTexts& own);

}  // namespace speclab
