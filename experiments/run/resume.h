#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/config/experiment.h"
#include "experiments/run/model_set.h"

namespace boost::program_options {
class variables_map;
}

/// Reads from a run folder how its run was configured, so that `speclab run --resume DIR` can continue the
/// run.
namespace speclab {

/// How a run was configured. A run of one target keeps this in config.json, a run of several targets in
/// targets.json.
struct RecordedRun {
  std::vector<Experiment> experiments;
  bool several = false;
};
/// Builds the experiments of a recorded run again, with the same cases, and applies `settings` (--set). If
/// the settings change the config, RunFolder or TargetsFolder refuses to resume. Throws Error when the folder
/// holds no run or its record lacks the config.
RecordedRun read_recorded_run(const std::filesystem::path& folder, const std::vector<std::string>& settings);

/// Returns the contents of targets.json for a run of several targets: the config with --set applied, and the
/// --filter.
nlohmann::json targets_header(const std::vector<Experiment>& experiments, const std::string& filter);

/// Returns "options" of environment.json: the command line's options for backend and device.
nlohmann::json to_json(const BackendChoice& choice);
/// Takes the recorded value of each of these options that the command line leaves out.
void take_recorded_options(const std::filesystem::path& folder,
                           const boost::program_options::variables_map& values, BackendChoice& choice);

/// Quotes a word for the shell where that is needed.
std::string shell_word(const std::string& word);

}  // namespace speclab
