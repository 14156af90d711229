#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "core/measure/stats.h"
#include "experiments/analysis/compare/typical_steps.h"

/// Pairs the steps of two runs one by one.
namespace speclab {

/// The steps of one case that did the same work in both runs: same prompt, seed and turn, same tokens up to
/// the end of the step, same first and last token, and the same numbers of drafted tokens and of rows. Only
/// the time of such a pair can differ, so acceptance plays no part in its ratio.
struct StepPairs {
  std::size_t pairs = 0;
  std::size_t base_steps = 0, new_steps = 0;  ///< steps of the texts that both runs have
  double ratio = 0;                           ///< time of all paired steps, base / new; 0 without pairs
  std::optional<stats::Interval> ci;          ///< bootstrap over prompts
  /// Variance of log(time per token of the base / of the new run) over the paired steps, by a bootstrap over
  /// prompts. Paired: a drawn prompt brings the steps of both runs. Unpaired: each run draws prompts of its
  /// own, as for runs over different texts. Absent with fewer than two prompts.
  std::optional<double> paired_variance, unpaired_variance;
};

StepPairs pair_steps(const std::map<TextKey, TypicalText>& base, const std::map<TextKey, TypicalText>& fresh);

}  // namespace speclab
