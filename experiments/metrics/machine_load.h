#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// Says whether something else used the machine during a run. The times of such a run are doubtful, whatever
/// their intervals say: an interval over prompts does not see that the machine was slow.
///
/// `cases` is that of summary.json, `drift` is MachineDrift::across_run(), absent where it is not known. The
/// result is "machine" of summary.json:
/// {"busy": bool, "drift": x | null, "reasons": [{"kind", "case", "value", "limit", "text"}], "text": str};
/// its text holds all reasons and is empty for a quiet machine.
nlohmann::json judge_machine(const nlohmann::json& cases, const nlohmann::json& environment,
                             std::optional<double> drift);

/// MachineDrift::across_run() of a run; absent without a calibration.
std::optional<double> drift_of(const RunData& run);

/// The judgement that a summary holds. A summary of an older version holds none; it is then made from its
/// cases.
nlohmann::json machine_of(const nlohmann::json& summary, const nlohmann::json& environment,
                          std::optional<double> drift = {});

/// Its text as a line; "" for a quiet machine.
std::string machine_text(const nlohmann::json& machine);

}  // namespace speclab
