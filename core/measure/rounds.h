#pragma once

#include <optional>
#include <vector>

#include "core/measure/recorder.h"

namespace speclab {

/// The acceptance data of one step with a chain as draft. A drafted token is *tested* when all tokens before
/// it were accepted. The end of the text or a limit may cut a step. Such a step is censored at the cut:
/// accepted tests before the cut count, tests after it must be left out, and the step has no rejection.
struct Round {
  int drafted = 0;        ///< gamma of this step; 0 for an autoregressive step
  int accepted = 0;       ///< tests that accepted their token
  bool rejected = false;  ///< the step ended with a rejection, which is one more test
  int emitted = 0;        ///< tokens added to the text: accepted + 1 unless cut
  /// Let e be the rule's expected acceptance at a tested position (sum min(p, q), sum p q, p(x), ...).
  /// expected_sum is the sum of e over the tested positions, and expected_variance is the sum of e (1 - e).
  /// Both are 0 when e was not recorded; then the estimator alpha_min (the mean of e) cannot be computed.
  double expected_sum = 0;
  double expected_variance = 0;

  int tests() const { return accepted + (rejected ? 1 : 0); }
};

using PromptRounds = std::vector<Round>;  // [rounds] of one prompt (or of one prompt and repeat), in order

/// Makes a round from a recorded step. Returns none when the draft is a branching tree, because a round has
/// at most one test per depth. expected_sum stays 0 unless the expected acceptance of every tested token was
/// recorded.
std::optional<Round> chain_round(const StepRecord& step);

}  // namespace speclab
