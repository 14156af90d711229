#include "core/decoding/drafting/schedules/length_bandit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/base/exp_log.h"
#include "core/decoding/budget/step_costs.h"

namespace speclab {

std::vector<double> chain_step_ns(const StepCosts& costs, int longest) {
  std::vector<double> ns;
  const double token_ns = costs.draft_ns.empty() ? 0 : costs.draft(1);
  for (int n = 0; n <= longest; ++n) ns.push_back(costs.target(n + 1) + n * token_ns);
  return ns;
}

LengthBandit::LengthBandit(std::vector<double> step_ns, double exploration)
    : step_ns_(std::move(step_ns)), exploration_(exploration), arms_(step_ns_.size() - 1) {
  SPECLAB_CHECK(!arms_.empty(), "a bandit without lengths");
  for (std::size_t n = 1; n < step_ns_.size(); ++n)
    largest_ = std::max(largest_, static_cast<double>(n + 1) / step_ns_[n]);
}

void LengthBandit::begin() {
  std::fill(arms_.begin(), arms_.end(), Arm());
  drafts_ = 0;
}

int LengthBandit::choose() const {
  std::size_t best = 0;
  double best_value = -1;
  for (std::size_t i = 0; i < arms_.size(); ++i) {
    const Arm& arm = arms_[i];
    if (arm.drafts == 0) return static_cast<int>(i) + 1;
    const double value = arm.reward / arm.drafts + std::sqrt(exploration_ * exact_log(drafts_) / arm.drafts);
    if (value > best_value) best = i, best_value = value;
  }
  return static_cast<int>(best) + 1;
}

void LengthBandit::observe(int length, int drafted, int accepted) {
  Arm& arm = arms_[static_cast<std::size_t>(length - 1)];
  const std::size_t tokens = std::min(static_cast<std::size_t>(drafted), step_ns_.size() - 1);
  arm.reward += (accepted + 1) / step_ns_[tokens] / largest_;
  ++arm.drafts;
  ++drafts_;
}

}  // namespace speclab
