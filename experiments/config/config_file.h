#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/config/experiment.h"

/// Reads config files into experiments (configs/README.md describes the format). The functions that read
/// throw Error that names the file, the JSON pointer, what was found and what was expected. An error about a
/// value of --set begins with this --set.
namespace speclab {

/// The keys that a config may have.
const std::vector<std::string>& config_keys();

/// Reads the file, applies `settings` (--set), expands sweeps and adds missing reference cases. Returns one
/// experiment for each of the config's "targets", because references, calibration and t(n) belong to one
/// target. Returns a single experiment for a config with "target".
std::vector<Experiment> load_experiments(const std::filesystem::path& file,
                                         const std::vector<std::string>& settings);
/// Does the same for a config that is in memory already. Messages call the config `name`.
std::vector<Experiment> configure_experiments(nlohmann::json config, const std::string& name,
                                              const std::vector<std::string>& settings);
/// Does the same without settings.
std::vector<Experiment> parse_experiments(const nlohmann::json& config, const std::string& name);
/// Reads a config with a single target. `target_at` is the JSON pointer of the target in the file, for
/// messages.
Experiment parse_experiment(nlohmann::json config, const std::string& name,
                            const std::string& target_at = "/target");

}  // namespace speclab
