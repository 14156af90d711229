#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/metrics/run_data.h"

namespace boost::program_options {
class variables_map;
}  // namespace boost::program_options

/// Parts of `speclab replay` that combine the run with other runs, or that need no trace.
namespace speclab {

/// Prints `out` as JSON with --json, else as the text that `text` makes of it.
void print_json_or(const boost::program_options::variables_map& values, const nlohmann::json& out,
                   std::string (*text)(const nlohmann::json&));

/// --check: compares the replay of the trace `run` with another run. Uses the costs of --costs and laws that
/// are fitted to the run of --laws. With --limit, returns kCheckFailed if a speedup exceeds --limit, if the
/// median error of the prompts' times exceeds --prompt-limit, or if an exactly replayed tau differs.
int check_against_run(const boost::program_options::variables_map& values, const RunData& run);

/// --fitted: predicts the fitted cases of `run` and the settings of --wng, --block and --recycled, by laws
/// that are fitted to `run`.
int replay_of_laws(const boost::program_options::variables_map& values, const RunData& run);

}  // namespace speclab
