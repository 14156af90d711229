#include "core/decoding/drafting/selection/drafter_bandit.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/exp_log.h"

namespace speclab {

DrafterBandit::DrafterBandit(int drafters, double best_rate, Settings settings)
    : arms_(static_cast<std::size_t>(drafters)), best_rate_(best_rate), settings_(settings) {
  SPECLAB_CHECK(!arms_.empty(), "a bandit without drafters");
}

void DrafterBandit::begin() {
  std::fill(arms_.begin(), arms_.end(), Arm());
  steps_ = 0;
}

int DrafterBandit::choose(std::span<const char> awake) const {
  SPECLAB_CHECK(awake.size() == arms_.size(), "{} drafters, not {}", awake.size(), arms_.size());
  const double log_steps = exact_log(std::max(1.0, steps_));
  int best = -1;
  double best_value = 0;
  for (std::size_t i = 0; i < arms_.size(); ++i) {
    if (awake[i] == 0) continue;
    const Arm& arm = arms_[i];
    if (arm.steps <= 0) return static_cast<int>(i);
    const double value = arm.reward / arm.steps + std::sqrt(settings_.exploration * log_steps / arm.steps);
    if (best < 0 || value > best_value) best = static_cast<int>(i), best_value = value;
  }
  return best;
}

void DrafterBandit::observe(int drafter, double tokens, double ns) {
  for (Arm& arm : arms_) arm.reward *= settings_.memory, arm.steps *= settings_.memory;
  steps_ = settings_.memory * steps_ + 1;
  Arm& arm = arms_[static_cast<std::size_t>(drafter)];
  arm.reward += tokens / ns / best_rate_;
  arm.steps += 1;
}

}  // namespace speclab
