#pragma once

#include <span>
#include <string>

#include "experiments/config/experiment.h"
#include "experiments/run/model_set.h"
#include "experiments/run/run_plan.h"

/// What can be known about a run before a model is loaded.
namespace speclab {

/// Looks whether the files that the experiments name are there: targets, the drafts of cases, datastores and
/// n-gram counts. Throws Error naming all that are missing.
void require_files(std::span<const Experiment> experiments);

/// A rough estimate of the time that the lines of a shard take, as a sentence that says how it was made.
/// Opens the target's files and measures the memory for half a second.
std::string time_estimate(const Experiment& experiment, const Shard& shard, const BackendChoice& choice);

}  // namespace speclab
