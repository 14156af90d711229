#include "core/decoding/drafting/heads/head_strategy.h"

namespace speclab {

void HeadStrategyOptions::fields(OptionVisitor& visit) {
  visit("head", head,
        "folder of the trained heads: head.json, or the config.json of published ones; required");
  tree.fields(visit);
  children.fields(visit);
  budget.fields(visit);
}

StrategyInfo head_strategy_info(const HeadStrategyTexts& own) {
  return {
      .name = own.name,
      .summary = own.summary,
      .paper = own.paper,
      .draft_source = own.draft_source,
      .stop_rule = "shape of the tree",
      .verification = "tree",
      .criterion = own.criterion,
      .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
      .trained = own.trained,
      .needs_file = "head",
  };
}

}  // namespace speclab
