#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "core/decoding/registry.h"
#include "experiments/config/experiment.h"
#include "experiments/run/model_set.h"
#include "experiments/run/run_plan.h"

/// Checks and estimates that need no loaded model.
namespace speclab {

/// Checks that the files which the experiments name exist: targets, the drafts of cases and the files
/// that options of strategies name, such as datastores and controllers. Throws Error that names all missing
/// files.
void require_files(std::span<const Experiment> experiments);

/// Checks by name and SHA-256 that the controller of a strategy's schedule, if it has one, was trained for
/// each of the draft models `drafts`, or for the target if `drafts` is empty. `models`: the contents of
/// ModelSet::descriptions(). Throws Error if a check fails, or if the controller's file is damaged.
void require_controller(const StrategyChoice& strategy, std::span<const std::string> drafts,
                        const nlohmann::json& models);
/// The same for the strategies and drafts of all cases.
void require_controllers(const Experiment& experiment, const nlohmann::json& models);

/// Returns a sentence with a rough estimate of the time that the lines of a shard take. The sentence also
/// says how the estimate was made. Opens the target's files and measures the memory bandwidth for half a
/// second, unless given_speed() has it. If `choice` is a device or the target a toy, the sentence only says
/// why there is no estimate.
std::string time_estimate(const Experiment& experiment, const Shard& shard, const BackendChoice& choice);

}  // namespace speclab
