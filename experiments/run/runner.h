#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "experiments/config/experiment.h"
#include "experiments/run/model_set.h"
#include "experiments/run/progress.h"
#include "experiments/run/run_plan.h"

namespace speclab {

struct RunRequest {
  Experiment experiment;
  BackendChoice backend;
  std::filesystem::path out;
  bool resume = false;
  Shard shard = {};  ///< the lines to measure; the others come from other calls into the same folder
  std::vector<std::string> command_line;
  std::function<bool()> interrupted;  ///< asked between steps; true: stop, keep the finished lines
};

struct RunOutcome {
  int failed = 0;   ///< lines that ended in an error
  int unequal = 0;  ///< lines that differ from the reference although equality is promised
  bool interrupted = false;
};

/// Loads the models once, calibrates, measures every line of the plan that is not there yet, estimates on the
/// finished texts, writes summary.json, also when it is interrupted. A line holds ids and hashes of logits
/// rows, and is compared with its reference wherever both are there (check_record): neither has to come
/// first. Throws Error when nothing more can be measured (models, folder, full disk); what goes wrong in one
/// line is recorded there and the run goes on.
RunOutcome run_experiment(const RunRequest& request, Progress& progress);

}  // namespace speclab
