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

/// `speclab run --resume DIR`: reads from a run folder how its run was configured, so that it can go on.
namespace speclab {

/// How a run was configured. A run of one target keeps this in config.json, a run of several in targets.json.
struct RecordedRun {
  std::vector<Experiment> experiments;
  bool several = false;
};
/// Makes the experiments of a recorded run again, with the same cases, and applies `settings` (--set). If
/// they change the config, RunFolder refuses to resume. Throws Error when the folder holds no run or its
/// record lacks the config.
RecordedRun read_recorded_run(const std::filesystem::path& folder, const std::vector<std::string>& settings);

/// targets.json of a run of several targets: the config with --set applied, and the --filter.
nlohmann::json targets_header(const std::vector<Experiment>& experiments, const std::string& filter);

/// "options" of environment.json: the command line's options for backend and device.
nlohmann::json to_json(const BackendChoice& choice);
/// Replaces the options that the command line leaves out by the recorded ones.
void take_recorded_options(const std::filesystem::path& folder,
                           const boost::program_options::variables_map& values, BackendChoice& choice);

/// Quotes a word for the shell where that is needed.
std::string shell_word(const std::string& word);

}  // namespace speclab
