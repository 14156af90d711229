#include "experiments/cli/predict/run_part.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/files.h"
#include "experiments/cli/command.h"
#include "experiments/run/runner.h"

namespace speclab {

PartEnd run_part(Experiment experiment, const std::filesystem::path& folder, const BackendChoice& backend,
                 bool resume, Progress& progress) {
  const RunOutcome outcome = run_experiment({.experiment = std::move(experiment),
                                             .backend = backend,
                                             .out = folder,
                                             .resume = resume && path_exists(folder / "config.json"),
                                             .command_line = command_line(),
                                             .interrupted = interrupted},
                                            progress);
  if (outcome.interrupted) return PartEnd::stopped;
  if (outcome.failed + outcome.unequal + outcome.failed_estimates == 0) return PartEnd::good;
  progress.warn(fmt::format(
      "{} failed lines, {} failed estimates, {} texts that differ from their reference; {} lists them",
      outcome.failed, outcome.failed_estimates, outcome.unequal, (folder / "summary.json").string()));
  return PartEnd::faulty;
}

}  // namespace speclab
