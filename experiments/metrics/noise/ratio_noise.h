#pragma once

#include <memory>
#include <optional>
#include <span>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// Returns how far apart two measurements of the same speedup are by chance. The speedup of a repeat is the
/// reference's decode time divided by the case's, both summed over the prompts of that repeat. A slow phase
/// of the machine slows down the reference and the case alike, so it cancels. Returns exp(x) - 1, where x is
/// the 95 % quantile of |log(speedup of repeat i / speedup of repeat j)| over all cases with a reference and
/// all pairs of repeats of such a case. Leaves out cases that break a promised equality. Absent when no case
/// is left that has two repeats of all its prompts.
std::optional<double> ratio_noise(std::span<const std::shared_ptr<CaseData>> cases);

}  // namespace speclab
