#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// Judges whether something else used the machine during a run. The times of such a run are doubtful
/// even if their confidence intervals are narrow: an interval over prompts does not show a slow machine.
///
/// `cases` is "cases" of summary.json. `drift` is MachineDrift::across_run(), absent when it is not known.
/// The result is "machine" of summary.json:
///   {"busy": bool, "drift": x | null, "reasons": [{"kind", "case", "value", "limit", "text"}], "text": str}
/// Its "text" joins all reasons and is empty for a quiet machine. Merged shards that were measured on several
/// kinds of CPU are a reason, too ("other_machines" of `environment`). The kind of this reason is "machines",
/// and its value is the number of differences in that list.
nlohmann::json judge_machine(const nlohmann::json& cases, const nlohmann::json& environment,
                             std::optional<double> drift);

/// MachineDrift::across_run() of a run; absent without a calibration or when across_run() is absent.
std::optional<double> drift_of(const RunData& run);

/// Returns the judgement in a summary. For a summary of an older version, which has no judgement, calls
/// judge_machine() with the cases of the summary.
nlohmann::json machine_of(const nlohmann::json& summary, const nlohmann::json& environment,
                          std::optional<double> drift = {});

/// The text of a judgement as a line; "" for a quiet machine.
std::string machine_text(const nlohmann::json& machine);

}  // namespace speclab
