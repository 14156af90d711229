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

/// Judges the draft from a trace. The draft is a draft model or, in a trace without draft models, the
/// strategy ngram_model. Returns
///   {"target", "draft": paths or descriptions, "case": id of the chains of the draft, "prompts": number,
///    "positions": of the trace,
///    "alpha", "alpha_ci95": expected acceptance of one draw at every position of the target's texts; for
///        n-grams the share of drafts whose first token is the text's next one,
///    "alpha_by_category": {category: alpha},
///    "acceptance_at": [P(token i + 1 of a draft is accepted | the tokens before it were)],
///    "acceptance_by_category": {category: the same list},
///    "c": time of a drafted token / time of a target forward of one row,
///    "t": {n: time of a target forward of n rows / of one row},
///    "row_costs": row_costs(): the floor of t(n) and its change points,
///    "lengths": [{"gamma", "tau", "tau_ci95", "speedup", "speedup_ci95"}] of chains of the draft,
///    "best": index of the fastest length in "lengths",
///    "strategies": best_of_strategies(): chains and trees of the draft, and strategies without it,
///    "recommended": index in "strategies" of the fastest setting that uses the draft; the verdict is about
///        this setting,
///    "interval": [lo, hi] of its speedup, widened by kReplayError,
///    "break_even_alpha": the alpha below which no chain gains, if all tokens had the same alpha,
///        or null if none gains at alpha 1,
///    "devices": repriced() entries of "drafts", with "device",
///    "verdict": "worth it" | "not worth it" | "unclear": the interval lies above 1, below 1, or holds 1,
///    "check": null, "best_check": null}
/// Throws Error if the trace has no case with the draft, or no calibration of it.
nlohmann::json preflight_verdict(const RunData& trace, const std::vector<SimulatedDevice>& devices);

/// The ids of the cases of a check.
struct CheckedCases {
  std::string own;        ///< the setting of the verdict
  std::string best = "";  ///< the best strategy without the draft; empty: not checked
};

/// Adds what a run of recommended settings measured on other prompts. For the setting of the verdict it adds
/// "check": {"case", "prompts", "speedup", "speedup_ci95", "agrees": whether the measured and the predicted
/// interval overlap, "contradicts": whether the two intervals lie on different sides of 1}. For the best
/// strategy without the draft it adds "best_check": {"case", "prompts", "speedup", "speedup_ci95"}. An entry
/// whose case has no measured speedup stays null. Throws Error if the run lacks one of the cases.
void add_check(nlohmann::json& verdict, const RunData& check, const CheckedCases& cases);

/// The verdict as text for people. The first sentence is the answer.
std::string preflight_text(const nlohmann::json& verdict);

}  // namespace speclab
