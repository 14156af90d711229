#pragma once

#include <string>

#include "experiments/analysis/compare/noise_floors.h"
#include "experiments/analysis/compare/speedup_change.h"

namespace speclab {

/// Whether the times of a case changed between two runs.
struct TimeVerdict {
  std::string verdict;   ///< "faster", "slower", "same", "unclear" or "unclear: REASON"
  std::string note;      ///< about its reference, such as "its reference is faster"; often ""
  bool suspect = false;  ///< the case is slower, or seems to be slower and is unclear
};

/// Judges a change by its intervals and the noise floors, which must be known.
///
/// Two ratios are judged: the case's time per token, base / new, and its speedup, new / base. A case is
/// "slower" if the intervals of both ratios lie below the bands of their noise floors. A faster reference
/// lowers only the speedup, so it makes no case slower. A slower machine raises the times of a case and of
/// its reference alike and leaves the speedup as it was. "Faster" is judged in the same way. A case is "same"
/// if one of the two intervals lies within its band; if the other does not, the note can say what the
/// reference did. Everything else, such as a single prompt, is "unclear". A slower machine cannot be told
/// from a slower engine, because both slow down the autoregressive case, too.
///
/// A case without a reference, such as the autoregressive case, is judged by its time per token alone.
TimeVerdict time_verdict(const SpeedupChange& change, const NoiseFloors& floors);

}  // namespace speclab
