#include "core/measure/rounds.h"

#include <algorithm>

namespace speclab {

std::optional<Round> chain_round(const StepRecord& step) {
  Round round{.drafted = static_cast<int>(step.drafted.size()), .emitted = step.emitted};
  // A step emits its accepted tokens and one more, unless it was cut inside the draft. In a step that was
  // cut, only the accepted tokens up to the cut count as tests. What the rule found after the cut does not
  // count.
  const bool cut = step.emitted <= step.accepted;
  double sum = 0, variance = 0;
  bool known = true;
  for (std::size_t i = 0; i < step.drafted.size(); ++i) {
    const DraftedToken& token = step.drafted[i];
    if (token.parent != static_cast<int>(i)) return std::nullopt;
    const bool counts = token.tested && !(cut && (!token.accepted || round.accepted == step.accepted));
    if (!counts) continue;
    if (token.accepted) {
      ++round.accepted;
    } else {
      round.rejected = true;
    }
    known = known && token.expected >= 0;
    sum += token.expected;
    variance += std::max(0.0, token.expected * (1 - token.expected));
  }
  if (known) {
    round.expected_sum = sum;
    round.expected_variance = variance;
  }
  return round;
}

}  // namespace speclab
