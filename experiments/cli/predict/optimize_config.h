#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/optimize/search_plan.h"
#include "experiments/run/model_set.h"

namespace speclab {

/// What `speclab optimize config` is asked for.
struct OptimizeConfigWords {
  std::filesystem::path config;       ///< the file
  std::vector<std::string> settings;  ///< --set
  std::string out;                    ///< the config to write
  std::filesystem::path folder;       ///< of the runs
  ConfigWish wish;
  BackendChoice backend;
  bool resume = false, as_json = false, quiet = false;
};

/// Searches the settings of a config and measures the three best and autoregressive decoding. Prints the
/// result, writes it to FOLDER/optimize.json, and writes the config of the best setting to `out`. Returns the
/// exit code of the command: kInterrupted, or 1 if no setting is faster than autoregressive decoding (then no
/// config is written), or 1 if lines failed or differ from their reference.
int optimize_config(const OptimizeConfigWords& words);

}  // namespace speclab
