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
/// steps with calibrated costs. Trace::certainty says whether tau is exact or an expectation.
/// Times come from the calibration of the trace's run or of another run.
///
/// replay/ has more: oracles, a search over many settings, the comparison with a run, trees, and mixes of
/// drafters. Drafters that depend on earlier steps have no trace; replay/laws predicts some of them.

/// What a replayed drafter does in each step.
struct ReplaySetting {
  int gamma = 1;  ///< longest draft; for the heuristic schedules the first length
  ScheduleOptions schedule;
  std::shared_ptr<const StepCosts> costs{};  ///< times of steps, for a schedule that needs them
};

/// What a replay counts.
struct Replayed {
  double steps = 0, tokens = 0, drafted = 0, accepted = 0;
  theory::DraftLengths lengths;  ///< steps by draft length
  double tau() const { return tokens / steps; }
};
void add_replayed(Replayed& sum, const Replayed& one);

/// Replays one text, as the first turn of a conversation.
Replayed replay_one(const TracedText& text, const ReplaySetting& setting);
/// Replays one text with a schedule that has already replayed the earlier turns of the conversation. Some
/// schedules keep their state from turn to turn.
Replayed replay_one(const TracedText& text, Schedule& schedule);
/// Replays the texts with these indices, in this order; the turns of a conversation follow one another.
/// Throws Error if the setting may draft more tokens than the longest draft of the trace has.
Replayed replay(const Trace& trace, std::span<const std::size_t> texts, const ReplaySetting& setting);
int longest_draft(const Trace& trace);        ///< tokens of the longest draft of the trace
double traced_positions(const Trace& trace);  ///< positions of all texts at which the trace has a draft

/// The texts of one prompt, as indices into Trace::texts.
struct PromptTexts {
  std::string prompt;
  std::vector<std::size_t> texts;
};
std::vector<PromptTexts> texts_by_prompt(const Trace& trace);  ///< in the order of the trace
std::vector<std::size_t> all_texts(const Trace& trace);        ///< the indices of all texts

/// Time of a mean step of a replay.
theory::StepTimes replayed_step(const Replayed& counts, const theory::Calibration& costs);
double replayed_speedup(const Replayed& counts, const theory::Calibration& costs);

/// Why a schedule cannot be replayed from a trace; "" if it can. `costs`: there are calibrated costs of the
/// traced case. The controller of a schedule must fit the draft of the trace and the probabilities that the
/// trace has.
std::string why_left_out(const Trace& trace, const ScheduleOptions& schedule, bool costs);
/// The calibrated times of forwards over up to `most_rows` rows, as a table of costs.
std::shared_ptr<const StepCosts> forwards_of(const theory::Calibration& costs, int most_rows);

/// Replays the settings `gammas` x `schedules` for every trace. Returns
///   {"traces": [{"case", "positions", "certainty": to_string(Trace::certainty),
///     "settings": [{"gamma", "schedule", "threshold", "tau", "tau_ci95", "draft_utilization",
///                   "speedup", "speedup_ci95", "ms_per_token",
///                   "over_best": speedup / speedup of the setting "best" | null; see below,
///                   "over_best_ci95": its interval, paired by prompt | null,
///                   "regret": {name of an oracle: ms that a token takes longer than with the oracle} | null,
///                   "regret_ci95": {name: [lo, hi] | null} | null, paired by prompt}],
///     "left_out": [{"schedule": name, "reason": str} of schedules that look at what the trace lacks (the
///                  confidence of the draft in its tokens, or the entropy of its rows), that need costs, or
///                  that need a controller and have none that fits],
///     "best": index of the setting with the fastest constant gamma | null,
///     "oracles": {name: {"ms_per_token", "ms_per_token_ci95", "speedup", and what was chosen}} | null; the
///                names and choices are those of oracles_of() (replay/oracles.h)}]}
/// Leaves out gammas above the longest draft of the trace, and traces whose longest draft is shorter than all
/// `gammas`. A heuristic schedule drafts at most as many tokens as that longest draft. Speedups, times and
/// oracles are null without calibrated costs of the case in `calibration`; a schedule that needs costs is
/// then left out, too. With calibrated costs, such a schedule looks at the calibrated times of forwards; in a
/// real run it looks at the run's table of costs.
///
/// All settings of a trace are priced with the costs of its case. If the case computes confidences or
/// entropies at temperature 0, each drafted token pays for a pass over its row. A real constant length does
/// not make this pass. So "best" is too slow by this pass, and "over_best" favours schedules.
nlohmann::json replayed(std::span<const Trace> traces, const nlohmann::json& calibration,
                        const std::vector<int>& gammas, const std::vector<ScheduleOptions>& schedules);

std::string replay_text(const nlohmann::json& replay);  ///< tables for people

}  // namespace speclab
