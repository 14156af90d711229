#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/decoding/drafting/schedule.h"
#include "core/theory/explain.h"
#include "experiments/simulate/trace.h"

namespace speclab {

/// Decoding without the models: shortens the drafts of a trace as a setting asks, and prices the resulting
/// steps with calibrated costs. tau is exact, token by token, for drafters whose proposal depends on the
/// committed text alone (draft models, copies from the text). It is an approximation for drafters that learn
/// from earlier drafts or from the target's rows. Times come from the calibration of the trace's run or of
/// another run.

/// What a replayed drafter does in each step.
struct ReplaySetting {
  int gamma = 1;  ///< longest draft
  ScheduleOptions schedule;
};

/// What a replay counts.
struct Replayed {
  double steps = 0, tokens = 0, drafted = 0, accepted = 0;
  theory::DraftLengths lengths;  ///< steps by draft length
  double tau() const { return tokens / steps; }
};

Replayed replay_one(const TracedText& text, const ReplaySetting& setting);  ///< replays one text
/// Replays the texts with these indices. Throws Error if the setting may draft more tokens than the longest
/// draft of the trace has.
Replayed replay(const Trace& trace, std::span<const std::size_t> texts, const ReplaySetting& setting);
int longest_draft(const Trace& trace);  ///< tokens of the longest draft of the trace

/// Time of a mean step of a replay.
theory::StepTimes replayed_step(const Replayed& counts, const theory::Calibration& costs);

/// Replays the settings `gammas` x `schedules` for every trace. Returns
///   {"traces": [{"case", "positions",
///     "settings": [{"gamma", "schedule", "threshold", "tau", "tau_ci95", "draft_utilization",
///                   "speedup", "speedup_ci95"}],
///     "best": index of the setting with the fastest constant gamma | null,
///     "best_per_text": speedup when every text has its own best gamma of `gammas` | null,
///     "oracle": speedup with the draft lengths that make each text fastest, chosen in hindsight; a step then
///               drafts only tokens that will be accepted, and no more than the largest of `gammas` | null}]}
/// Leaves out settings that may draft more than the longest draft of the trace, and schedules that need
/// confidences which the trace lacks. Also leaves out traces whose longest draft is shorter than all
/// `gammas`. Speedups are null without calibrated costs of the case in `calibration`.
nlohmann::json replayed(std::span<const Trace> traces, const nlohmann::json& calibration,
                        const std::vector<int>& gammas, const std::vector<ScheduleOptions>& schedules);

/// Compares replayed taus and speedups with those of `measured`, a run of the same prompts. Takes each case
/// that has the strategy, the draft, the rule and the options of a trace; gamma, schedule and budget may
/// differ. Leaves out a case whose setting replayed() would leave out, and a case that lacks a prompt of the
/// trace. Returns [{"case", "tau", "replayed_tau", "speedup" | null, "replayed_speedup" | null,
/// "error": replayed_speedup / speedup - 1 | null}].
nlohmann::json replay_check(std::span<const Trace> traces, const nlohmann::json& calibration,
                            const RunData& measured);

std::string replay_text(const nlohmann::json& replay);            ///< tables for people
std::string replay_check_text(const nlohmann::json& comparison);  ///< a table for people

}  // namespace speclab
