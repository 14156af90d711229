#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

/// The end of the W, N, G laboratory: what the law that was fitted to a run recommends for the machine of the
/// run is measured in a run of its own, beside autoregressive decoding.
namespace speclab {

/// The fit with most cells in summary.json's "lookahead". Throws Error when there is none.
const nlohmann::json& largest_lookahead_fit(const nlohmann::json& summary);

/// What to measure of a run with this summary: [{"role", "W", "N", "G", "tau", "speedup"}], tau and speedup
/// as predicted. First the recommendation ("recommended"), or, where that is to decode autoregressively, the
/// setting that the law likes best among all ("best of lookahead"); then the one that was fastest in the run
/// itself
/// ("fastest in the run"), if it is another one. Throws Error without a calibration.
nlohmann::json lookahead_candidates(const nlohmann::json& summary);

/// A config that measures the candidates: target, prompts and options of the run (its resolved config.json),
/// several repeats.
nlohmann::json follow_up_config(const nlohmann::json& run_config, const nlohmann::json& summary);

/// The verdict over a run and the follow-up measured after it (both summaries):
///   {"machine", "best": {"W", "N", "G", "tau", "speedup"}, "degenerate": bool, "never_slower": bool | null,
///    "ratio_noise", "measured": [{"role", "case", "W", "N", "G", "predicted": {"tau", "speedup"}, "tau",
///    "speedup", "speedup_ci95", "verdict": see judge_speedup}], "regret": x,
///    "free_rows": n, "by_free_rows": [{"rows", "W", "N", "G", "tau", "speedup"}]}
/// ratio_noise: how far the same speedup differs between repeats of the follow-up (ratio_noise.h).
/// never_slower is about the recommendation: true when it is at most 5 % slower for certain, false when it is
/// slower for certain, null when neither is shown; decoding autoregressively is not slower than itself.
/// regret: 1 - speedup of the recommendation / best speedup measured in the follow-up. free_rows: most rows
/// that cost up to 5 % of a forward here; by_free_rows: the recommendation for machines on which so many rows
/// cost nothing. `follow_up` null: all but what needs it.
nlohmann::json lookahead_verdict(const nlohmann::json& summary, const nlohmann::json& follow_up);

/// A speedup's interval (null: one prompt) is first widened by the noise of ratios (null: no repeats), to
/// [lo / (1 + noise), hi * (1 + noise)]. Then: "faster" or "slower" when 1 lies outside, "same" when it stays
/// within 5 % of 1, else "unclear"; "unclear: no repeats" and "unclear: one prompt" where it cannot be
/// judged.
std::string judge_speedup(const nlohmann::json& ci95, const nlohmann::json& noise);

/// For people.
std::string to_verdict_text(const nlohmann::json& verdict);

}  // namespace speclab
