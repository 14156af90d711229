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

/// Everything that run_experiment needs.
struct RunRequest {
  Experiment experiment;
  BackendChoice backend;
  std::filesystem::path out;
  bool resume = false;
  /// The folder of a run, or a file, that holds the table of costs for the option "budget": "auto" and the
  /// schedule `bandit`. Empty: the table is measured. A resumed run always takes the table in its own record.
  std::filesystem::path costs_of = {};
  /// The lines to measure. Other calls measure the other shards, into this folder (with `resume`) or into
  /// others (experiments/merge joins them).
  Shard shard = {};
  std::vector<std::string> command_line;
  std::function<bool()> interrupted;  ///< called between steps; true stops the run and keeps finished lines
};

struct RunOutcome {
  int failed = 0;            ///< lines that ended in an error
  int unequal = 0;           ///< lines that differ from the reference although equality is promised
  int failed_estimates = 0;  ///< teacher-forced estimates that ended in an error
  bool interrupted = false;
};

/// Runs an experiment. It loads the models once, calibrates, measures every line of the plan that is not in
/// the record yet (a failed line is not measured again), and makes teacher-forced estimates on the finished
/// texts. It writes summary.json at the end, also after an interruption. A line holds token ids and hashes of
/// logits rows. A line is compared with its reference as soon as both lines are finished (RunLines). An error
/// in a line is recorded in that line, and the run goes on. Throws Error when nothing more can be measured,
/// for example because a model is missing, the folder cannot be used or the disk is full.
RunOutcome run_experiment(const RunRequest& request, Progress& progress);

}  // namespace speclab
