#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/config/experiment.h"

namespace speclab {

/// Expands the entries of "cases" crossed with the shared "options" into experiment.cases, makes ids, names
/// inline drafts, adds autoregressive references. `where` is the file.
void expand_cases(Experiment& experiment, const nlohmann::json& cases, const nlohmann::json& shared,
                  const std::string& where);

/// Names of all options that a case may set besides its strategy's own: generation options, "strategy",
/// "draft", "verify".
std::vector<std::string> common_case_keys();

}  // namespace speclab
