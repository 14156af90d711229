#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

/// Tests the law of lookahead decoding, which is fitted to a run and recommends a setting W, N, G (window,
/// n-gram size, guesses) for this machine. A follow-up run measures this setting and autoregressive decoding.
namespace speclab {

/// The fit with the largest number of cells in summary.json's "lookahead". Throws Error when there is no fit.
const nlohmann::json& largest_lookahead_fit(const nlohmann::json& summary);

/// The settings to measure: [{"role", "W", "N", "G", "tau", "speedup"}] with predicted tau and speedup. The
/// first is the law's recommendation ("recommended"). If the law recommends autoregressive decoding, the
/// first is instead the best setting of lookahead decoding ("best of lookahead"). The second is the fitted
/// cell with the largest measured speedup ("fastest in the run"), if its setting differs from the first.
/// Throws Error without a calibration or a fit.
nlohmann::json lookahead_candidates(const nlohmann::json& summary);

/// A config that measures autoregressive decoding and the candidates with several repeats. It takes target,
/// prompts and seeds from the run's config.json, and options from a fitted case of the summary.
nlohmann::json follow_up_config(const nlohmann::json& run_config, const nlohmann::json& summary);

/// The verdict on a run and on the follow-up that was measured after it. Both arguments are summaries. The
/// result is:
///   {"machine", "best": {"W", "N", "G", "tau", "speedup"}, "degenerate": bool, "never_slower": bool | null,
///    "ratio_noise", "measured": [{"role", "case", "W", "N", "G", "predicted": {"tau", "speedup"}, "tau",
///    "speedup", "speedup_ci95", "verdict": see judge_speedup}], "regret": x | null,
///    "free_rows": n, "by_free_rows": [{"rows", "W", "N", "G", "tau", "speedup"}]}
/// - ratio_noise: how far the same speedup differs between repeats of the follow-up (ratio_noise.h).
/// - never_slower: judges the speedup of the recommendation by its widened interval (judge_speedup). False
///   when the interval lies below 1, else true when it lies above 1 / 1.05, else null. Always true when
///   autoregressive decoding is recommended.
/// - regret: 1 - speedup of the recommendation / best speedup in the follow-up. Autoregressive decoding
///   counts with speedup 1. Null if the follow-up has no speedup of the recommendation.
/// - free_rows: largest number of rows whose forward costs at most 5 % more than one row on this machine.
/// - by_free_rows: the recommendation for machines on which "rows" rows cost no more than one.
/// With `follow_up` null, the fields that need a follow-up are null or empty.
nlohmann::json lookahead_verdict(const nlohmann::json& summary, const nlohmann::json& follow_up);

/// Judges a speedup by its interval. `ci95` is null for a single prompt, `noise` (ratio_noise) is null
/// without repeats; the result is then "unclear: one prompt" or "unclear: no repeats". Otherwise the interval
/// is widened to [lo / (1 + noise), hi * (1 + noise)]. The result is "faster" when the widened interval lies
/// above 1, "slower" when it lies below 1, "same" when it lies within [1 / 1.05, 1.05], else "unclear".
std::string judge_speedup(const nlohmann::json& ci95, const nlohmann::json& noise);

/// The verdict as text for people.
std::string to_verdict_text(const nlohmann::json& verdict);

}  // namespace speclab
