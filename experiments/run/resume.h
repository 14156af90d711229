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

/// `speclab run --resume DIR`: a run folder says by itself how its run goes on.
namespace speclab {

/// How a run of one or several targets was configured. Of one target it stands in its config.json, of several
/// in targets.json.
struct RecordedRun {
  std::vector<Experiment> experiments;
  bool several = false;
};
/// Makes the experiments of a run again from its record, with the same cases. `settings` (--set) come on top:
/// what differs is refused when the run goes on. Throws Error when the folder holds no run, or one without
/// what is needed.
RecordedRun read_recorded_run(const std::filesystem::path& folder, const std::vector<std::string>& settings);

/// targets.json of a run of several targets: its config with --set applied, and its --filter.
nlohmann::json targets_header(const std::vector<Experiment>& experiments, const std::string& filter);

/// environment.json's "options": those of the command line that decide on backend and device.
nlohmann::json to_json(const BackendChoice& choice);
/// Takes the recorded options in place of those that the command line leaves out.
void take_recorded_options(const std::filesystem::path& folder,
                           const boost::program_options::variables_map& values, BackendChoice& choice);

/// A word as a shell reads it.
std::string shell_word(const std::string& word);

}  // namespace speclab
