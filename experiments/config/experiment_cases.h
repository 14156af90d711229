#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/config/experiment.h"

namespace speclab {

/// Fills experiment.cases: expands the entries of "cases", combines each with every point of the shared
/// "options" (a strategy's option applies only to cases whose strategy has it), makes ids, names inline
/// drafts, and adds the autoregressive references that are missing. `where` is the name of the config file,
/// for messages.
void expand_cases(Experiment& experiment, const nlohmann::json& cases, const nlohmann::json& shared,
                  const std::string& where);

/// Names of the options of all strategies, sorted.
std::vector<std::string> strategy_option_names();

/// The keys that a case of any strategy may have: the names of the generation options, "strategy", "draft",
/// "drafts", "verify" and "devices".
std::vector<std::string> common_case_keys();

}  // namespace speclab
