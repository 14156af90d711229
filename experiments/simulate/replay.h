#pragma once

#include <memory>
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
  std::shared_ptr<const StepCosts> costs{};  ///< times of steps, for a schedule that needs them
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
///                   "speedup", "speedup_ci95",
///                   "over_best": speedup / that of the setting "best" | null,
///                   "over_best_ci95": its interval, paired by prompt | null}],
///     "left_out": [names of schedules that look at what the trace lacks: the confidence of the draft in its
///                  tokens, or the entropy of its rows],
///     "best": index of the setting with the fastest constant gamma | null,
///     "best_per_text": speedup when every text has its own best gamma of `gammas` | null,
///     "oracle": speedup with the draft lengths that make each text fastest, chosen in hindsight; a step then
///               drafts only tokens that will be accepted, and no more than the largest of `gammas` | null}]}
/// Leaves out gammas above the longest draft of the trace, and traces whose longest draft is shorter than all
/// `gammas`. A heuristic schedule drafts at most as many tokens as that longest draft. Speedups are null
/// without calibrated costs of the case in `calibration`; a schedule that needs costs is then left out, too.
/// It gets the calibrated times of forwards, where a real run has its table of costs.
nlohmann::json replayed(std::span<const Trace> traces, const nlohmann::json& calibration,
                        const std::vector<int>& gammas, const std::vector<ScheduleOptions>& schedules);

/// Compares replayed taus and speedups with those of `measured`, a run of the same prompts. Takes each case
/// that has a reference and that agrees with a trace in strategy, draft, rule and options. The draft length,
/// the schedule and the budget may differ. Leaves out a case whose setting replayed() would leave out, a case
/// whose schedule needs costs, and a case whose prompts are not those of the trace. Returns [{"case", "tau",
/// "replayed_tau", "speedup" | null,
/// "replayed_speedup" | null, "error": replayed_speedup / speedup - 1 | null}].
nlohmann::json replay_check(std::span<const Trace> traces, const nlohmann::json& calibration,
                            const RunData& measured);

std::string replay_text(const nlohmann::json& replay);            ///< tables for people
std::string replay_check_text(const nlohmann::json& comparison);  ///< a table for people

}  // namespace speclab
