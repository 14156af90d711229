#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/analysis/compare/compare.h"
#include "experiments/config/experiment.h"

/// Suspects are the cases that are slower, or that seem to be slower and are unclear (TimeVerdict). `speclab
/// compare --rerun` measures them a second time. The verdict "slower" stays unless the second measurement
/// says "same" or "faster".
namespace speclab {

std::vector<std::string> suspects_of(const Comparison& comparison);

/// Builds the experiment that measures these cases of a recorded run again, with their references. `folder`:
/// the folder of that run. Throws Error when its record lacks the config.
Experiment experiment_of_cases(const std::filesystem::path& folder, const std::vector<std::string>& ids);

/// Takes a second measurement of the suspects into account. `again` compares BASE with the run that measured
/// them again. A case that was slower and is "same" or "faster" the second time becomes "unclear: not slower
/// when measured again" and does not fail for its time. Any other second verdict, such as "unclear: busy
/// machine" or "not compared: REASON", does not change the first one. Failures of the second measurement
/// other than "slower" are added.
void settle_suspects(Comparison& comparison, const Comparison& again);

}  // namespace speclab
