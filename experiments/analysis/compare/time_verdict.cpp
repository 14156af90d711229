#include "experiments/analysis/compare/time_verdict.h"

#include "core/base/error.h"

namespace speclab {
namespace {

using stats::Verdict;

/// True if the value itself, without its interval, is below the band of the noise floor.
bool below_band(const stats::Value& ratio, double floor) { return ratio.value * (1 + floor) < 1; }

TimeVerdict same_because(Verdict own, Verdict speedup) {
  if (speedup != Verdict::kSame) {
    return {.verdict = "same",
            .note = speedup == Verdict::kSlower   ? "its reference is faster"
                    : speedup == Verdict::kFaster ? "its reference is slower"
                                                  : ""};
  }
  return {.verdict = "same",
          .note = own == Verdict::kSlower   ? "slower, and so is its reference"
                  : own == Verdict::kFaster ? "faster, and so is its reference"
                                            : ""};
}

TimeVerdict verdict_of_both(Verdict own, Verdict speedup) {
  if (own == Verdict::kSame || speedup == Verdict::kSame) return same_because(own, speedup);
  if (own == speedup) return {.verdict = std::string(stats::to_string(own)), .note = ""};
  if (speedup == Verdict::kSlower) return {.verdict = "unclear: its reference is faster", .note = ""};
  if (speedup == Verdict::kFaster) return {.verdict = "unclear: its reference is slower", .note = ""};
  return {.verdict = "unclear", .note = ""};
}

}  // namespace

TimeVerdict time_verdict(const SpeedupChange& change, const NoiseFloors& floors) {
  SPECLAB_CHECK(floors.times && (floors.speedups || !change.has_reference), "a noise floor is not known");
  if (!change.own.ci || !change.whole.ci) return {.verdict = "unclear: one prompt", .note = ""};
  const Verdict own = stats::verdict(*change.own.ci, *floors.times);
  TimeVerdict result{.verdict = std::string(stats::to_string(own)), .note = ""};
  bool seems_slower = below_band(change.own, *floors.times);
  if (change.has_reference) {
    result = verdict_of_both(own, stats::verdict(*change.whole.ci, *floors.speedups));
    seems_slower = seems_slower && below_band(change.whole, *floors.speedups);
  }
  result.suspect = result.verdict == "slower" || (result.verdict.starts_with("unclear") && seems_slower);
  return result;
}

}  // namespace speclab
