#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// One run of a comparison. A committed record has a summary and counts as a run without raw lines: its lines
/// are packed (`scripts/baseline.py expand` unpacks them) or were not kept.
struct ComparedRun {
  RunData run;
  nlohmann::json summary;   ///< summary.json
  std::string folder = {};  ///< for messages; "" for a run that was not read from a folder
};
/// Reads a run folder. Computes the summary, without writing it, when the folder has lines. Throws Error when
/// the folder holds no run.
ComparedRun load_compared_run(const std::filesystem::path& folder);

}  // namespace speclab
