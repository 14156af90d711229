#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "experiments/simulate/replay/laws/fitted_law.h"

namespace speclab {

/// Predicts the measured settings of each law and the given `settings`. These are objects of options such as
/// {"W": 7, "N": 5, "G": 7}, {"block": 8} or {"tree": [4, 2, 1]}. Each is predicted by every law that is
/// about exactly these options. Returns
///   [{"strategy", "certainty": "fitted", "law", "assumptions", "parameters",
///     "other_prompts", "other_settings": {"predictions", "median"} | null, see FittedLaw,
///     "settings": [{"setting": {option: value}, "case": id | null if it was not measured,
///                   "tau", "measured_tau" | null, "rows", "drafted_per_step",
///                   "speedup" | null, "measured_speedup" | null, "ms_per_token" | null}]}]
/// Predicted times and speedups are null without calibrated costs. Throws Error as FittedLaw::options_with()
/// does, and for a setting that no law is about.
nlohmann::json law_table(std::span<const FittedLaw> laws, const std::vector<nlohmann::json>& settings);

std::string law_table_text(const nlohmann::json& laws);  ///< tables for people

}  // namespace speclab
