#pragma once

#include <optional>
#include <vector>

#include "core/measure/recorder.h"

namespace speclab {

/// What one step of chain speculation says about acceptance. A drafted token is *tested* when all before it
/// were accepted. A step cut by an end of text or a limit is censored at the cut: the accepted tests up to
/// there count, and there is no rejection; tests behind the cut must be left out.
struct Round {
  int drafted = 0;        ///< gamma of this step; 0 for a plain autoregressive step
  int accepted = 0;       ///< tests that accepted
  bool rejected = false;  ///< the step ended by a rejection, i.e. one more test, which failed
  int emitted = 0;        ///< tokens added to the text: accepted + 1 unless cut
  /// Sum over tested positions of the rule's expected acceptance (sum min(p, q), sum p q, p(x), ...), and of
  /// expected * (1 - expected). Leave both 0 when not recorded, and do not ask for alpha_min then.
  double expected_sum = 0;
  double expected_variance = 0;

  int tests() const { return accepted + (rejected ? 1 : 0); }
};

using PromptRounds = std::vector<Round>;  // [rounds] of one prompt (or of one prompt and repeat), in order

/// The round of a recorded step. Absent when the draft is a tree that branches: several tests at one node do
/// not make a round. expected_sum stays 0 unless every tested token has its expected acceptance.
std::optional<Round> chain_round(const StepRecord& step);

}  // namespace speclab
