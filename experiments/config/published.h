#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/config/experiment.h"

namespace speclab {

/// Checks "published" of a config, the numbers that others published, and stores it in the experiment:
///   [{"case": ID, "source": TEXT, "category": NAME, "reason": TEXT, "metrics": {NAME: number},
///     "predictions": {NAME: number}}]
/// All keys but "case" and "source" are optional. Cases and prompts of the experiment must be there already.
/// Throws Error for an unknown case, category, metric or key, and for a value of the wrong type.
void read_published(Experiment& experiment, const nlohmann::json& list, const std::string& where);

}  // namespace speclab
