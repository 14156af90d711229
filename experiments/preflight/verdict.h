#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/metrics/run_data.h"
#include "experiments/simulate/device_file.h"

namespace speclab {

/// What `speclab preflight` concludes from its two runs (PreflightPlan).

/// A preflight lowers the lower end of the interval of a predicted speedup by this fraction, and raises the
/// upper end by it. The interval itself says how much the speedup varies between prompts. The widening covers
/// the error of replayed speedups, which was at most 2.9 % in the run that replay was checked with.
inline constexpr double kReplayError = .03;

/// Judges the draft model from a trace. Returns
///   {"target", "draft": paths or descriptions, "case": id, "prompts": number, "positions": of the trace,
///    "alpha", "alpha_ci95": expected acceptance of one draw at every position of the target's texts,
///    "alpha_by_category": {category: alpha},
///    "acceptance_at": [P(token i + 1 of a draft is accepted | the tokens before it were)],
///    "c": time of a drafted token / time of a target forward of one row,
///    "t": {n: time of a target forward of n rows / that of one row},
///    "lengths": [{"gamma", "tau", "tau_ci95", "speedup", "speedup_ci95"}] of the draft model,
///    "best": index of the fastest length in "lengths",
///    "interval": [lo, hi] of the best speedup, widened by kReplayError,
///    "break_even_alpha": the alpha below which no length gains, if all tokens had the same alpha | null if
///                        none gains at alpha 1,
///    "others": [{"case", "gamma", "speedup", "speedup_ci95"}]: the best length of each traced case without a
///              draft model, fastest first,
///    "devices": repriced() entries of "drafts", with "device",
///    "verdict": "worth it" | "not worth it" | "unclear": the interval lies above 1, below 1, or holds 1,
///    "check": null}
/// Throws Error if the trace has no case with a draft model, or no calibration of it.
nlohmann::json preflight_verdict(const RunData& trace, const std::vector<SimulatedDevice>& devices);

/// Adds what a run of the recommended length measured on other prompts: "check": {"case", "prompts",
/// "speedup", "speedup_ci95", "agrees": whether the measured and the predicted interval overlap,
/// "contradicts": whether the two intervals lie on different sides of 1}.
void add_check(nlohmann::json& verdict, const RunData& check);

/// The verdict as text for people. The first sentence is the answer.
std::string preflight_text(const nlohmann::json& verdict);

}  // namespace speclab
