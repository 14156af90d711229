#include "core/decoding/budget/draft_switch.h"

namespace speclab {
namespace {

constexpr double kStepMemory = .95;  // decay factor of old steps at each new one
constexpr double kGuessWeight = 4;   // steps that a first guess counts as

}  // namespace

double DraftSwitch::Steps::rate(double first_tokens, double first_ns) const {
  return (tokens + kGuessWeight * first_tokens) / (ns + kGuessWeight * first_ns);
}

bool DraftSwitch::decide(double with_ns, double without_ns) {
  const double with = with_.rate(1 + settings_.first_guess, with_ns), without = without_.rate(1, without_ns);
  const bool was_on = on_;
  on_ = with >= without;
  if (on_) trials_.step_in_use();
  else
    on_ = trials_.try_now(without_ns, with_ns * (1 - with / without),
                          settings_.trial_steps + settings_.idle_steps);
  on_for_ = on_ ? (was_on ? on_for_ + 1 : 1) : 0;
  return on_;
}

void DraftSwitch::observe(int emitted, double ns) {
  if (on_ && on_for_ <= settings_.idle_steps) return;
  Steps& steps = on_ ? with_ : without_;
  steps.tokens = kStepMemory * steps.tokens + emitted;
  steps.ns = kStepMemory * steps.ns + ns;
}

}  // namespace speclab
