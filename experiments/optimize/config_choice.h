#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// The choice that `speclab optimize config` makes among predicted settings, and its test by a measurement.
///
/// A predicted setting is {"what": words for people, "case": id of the traced case | null, "how": "replay" or
/// "fitted law", "entry": entry of "cases" of a config, "tau", "tau_ci95", "speedup", "speedup_ci95"}. The
/// intervals are null if they are not known.

/// Two predictions for one traced case are not told apart if they differ by less than this fraction: a short
/// measurement could not decide between them.
inline constexpr double kToldApart = .01;

/// Chooses `count` of the settings to measure, fastest first, as indices. A setting is passed over if a
/// faster setting of the same traced case has been chosen and the two speedups are not told apart
/// (kToldApart). If too few settings are left, the fastest of the passed-over settings follow. A setting
/// with "case" null is never passed over. Ties go to the first.
std::vector<std::size_t> settings_to_measure(const std::vector<nlohmann::json>& settings, std::size_t count);

/// Puts what a run measured beside the predictions. `measured` has one case with a reference for each setting
/// of `chosen`, in the same order. Returns
///   {"settings": [a predicted setting with
///        "measured": {"case", "tau", "speedup", "speedup_ci95", "prompts", "verdict": see judge_speedup} |
///                    null for a case that failed or differs from its reference,
///        "error": predicted / measured speedup - 1 | null],
///    "ratio_noise": how much a speedup differs between two repeats | null,
///    "best": index of the setting with the largest measured speedup above 1 | null}
/// Throws Error if the run has another number of cases with a reference.
nlohmann::json measured_choice(const std::vector<nlohmann::json>& chosen, const RunData& measured);

/// The table of measured_choice() for people, and a sentence about the best setting.
std::string choice_text(const nlohmann::json& choice);

}  // namespace speclab
