#pragma once

#include <filesystem>

#include "experiments/config/experiment.h"
#include "experiments/run/model_set.h"
#include "experiments/run/progress.h"

namespace speclab {

/// How an experiment of a command ended. `good`: as planned. `faulty`: lines or estimates failed, or texts
/// differ from their reference; a warning has said so. `stopped`: a signal interrupted it.
enum class PartEnd { good, faulty, stopped };

/// Runs one of the experiments of a command that makes several, into a folder of its own. With `resume`, an
/// experiment that was begun in that folder goes on; otherwise the experiment begins. Call catch_interrupts()
/// first. Throws Error as run_experiment() does.
PartEnd run_part(Experiment experiment, const std::filesystem::path& folder, const BackendChoice& backend,
                 bool resume, Progress& progress);

}  // namespace speclab
