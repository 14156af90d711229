#include "core/decoding/budget/budget_options.h"

#include <string>

#include "core/base/error.h"
#include "core/decoding/budget/step_costs.h"

namespace speclab {

void BudgetOptions::fields(OptionVisitor& visit) {
  visit("budget", rule, {{BudgetRule::fixed, "fixed"}, {BudgetRule::automatic, "auto"}},
        "how much is drafted and verified. fixed: as much as the other options say. auto: the part of this "
        "that gives the most expected tokens per time, by the measured times of forwards and the acceptance "
        "in the text so far; the part may be empty");
  visit.absent_means("fixed");
}

void require_draft_costs(const StepCosts* costs, const char* strategy) {
  if (costs != nullptr && !costs->draft_ns.empty()) return;
  throw Error({std::string(strategy) + ": costs", "no table of costs with times of the draft model",
               "times of forwards of the draft model (StepCosts::draft_ns)",
               "If there is a table, an older version wrote it, or its run had no draft model. Measure a new "
               "table, or set budget to fixed and take a schedule that needs no costs."});
}

void require_layer_costs(const StepCosts* costs, const char* strategy) {
  if (costs != nullptr && costs->layer_ns >= 0) return;
  throw Error({std::string(strategy) + ": costs", "no table of costs with the time of a layer",
               "the time of a layer of the target (StepCosts::layer_ns)",
               "If there is a table, an older version wrote it, or no case of its run drafted with the "
               "target itself. Measure a new table, or set budget to fixed and take a schedule that needs no "
               "costs."});
}

}  // namespace speclab
