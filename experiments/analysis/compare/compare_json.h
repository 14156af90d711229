#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/analysis/compare/compare.h"

namespace speclab {

/// A comparison as `speclab compare --json` prints it (results/SCHEMA.md, "Comparison"). `base` and `fresh`
/// are the folders of the two runs.
nlohmann::json comparison_json(const Comparison& comparison, const std::string& base,
                               const std::string& fresh);

}  // namespace speclab
