#include "core/decoding/drafting/selection/drafter_costs.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace speclab {

DrafterCosts::DrafterCosts(std::vector<std::shared_ptr<const StepCosts>> tables)
    : tables_(std::move(tables)) {
  SPECLAB_CHECK(!tables_.empty(), "costs of no drafter");
  for (const auto& table : tables_)
    SPECLAB_CHECK(table != nullptr && !table->target_ns.empty(), "a table without times of the target");
}

double DrafterCosts::step_ns(int drafter, int drafted, int behind) const {
  const StepCosts& costs = table(drafter);
  const double target_ns = costs.target(drafted + 1);
  if (drafted == 0 || costs.draft_ns.empty()) return target_ns;
  return target_ns + costs.draft(1 + behind) + (drafted - 1) * costs.draft(1);
}

double DrafterCosts::token_ns(int drafter) const {
  return table(drafter).draft_ns.empty() ? 0 : table(drafter).draft(1);
}

double DrafterCosts::catch_up_ns(int drafter, int tokens) const {
  double ns = 0;
  for (int other = 0; tokens > 0 && other < drafters(); ++other) {
    if (other != drafter && !table(other).draft_ns.empty()) ns += table(other).draft(tokens);
  }
  return ns;
}

double DrafterCosts::best_rate(const std::vector<int>& longest) const {
  SPECLAB_CHECK(longest.size() == tables_.size(), "lengths of {} drafters, not {}", longest.size(),
                tables_.size());
  double best = 0;
  for (int drafter = 0; drafter < drafters(); ++drafter) {
    for (int drafted = 0; drafted <= longest[static_cast<std::size_t>(drafter)]; ++drafted)
      best = std::max(best, (drafted + 1) / step_ns(drafter, drafted));
  }
  return best;
}

}  // namespace speclab
