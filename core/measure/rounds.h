#pragma once

#include <optional>
#include <vector>

#include "core/measure/recorder.h"

namespace speclab {

/// The acceptance data of one step of chain speculation. A drafted token is *tested* when all tokens before
/// it were accepted. A step that the end of the text or a limit cuts is censored there: accepted tests before
/// the cut count, tests after it must be left out, and the step has no rejection.
struct Round {
  int drafted = 0;        ///< gamma of this step; 0 for an autoregressive step
  int accepted = 0;       ///< tests that accepted
  bool rejected = false;  ///< the step ended with a rejection: one more test, which failed
  int emitted = 0;        ///< tokens added to the text: accepted + 1 unless cut
  /// Sums over the tested positions: of the rule's expected acceptance e (sum min(p, q), sum p q, p(x), ...),
  /// and of e (1 - e). Both are 0 when they were not recorded; alpha_min cannot be computed then.
  double expected_sum = 0;
  double expected_variance = 0;

  int tests() const { return accepted + (rejected ? 1 : 0); }
};

using PromptRounds = std::vector<Round>;  // [rounds] of one prompt (or of one prompt and repeat), in order

/// Makes a round from a recorded step. Absent when the draft is a branching tree, because a round has at most
/// one test per depth. expected_sum stays 0 unless every tested token has its expected acceptance.
std::optional<Round> chain_round(const StepRecord& step);

}  // namespace speclab
