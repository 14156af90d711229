#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "experiments/simulate/replay.h"
#include "experiments/simulate/replay/step_prices.h"

namespace speclab {

/// A mix of drafters: they are asked in a fixed order, and the first one that finds anything drafts the step.
/// prompt_lookup with "fallback": "draft" is such a mix: copies if there are any, else a draft model.
///
/// Who drafts depends on the text alone, so tau is exact. The time of a step is the time with its drafter,
/// plus the draft times of the drafters that were asked before and found nothing. This assumes that the cache
/// of a draft model follows the text for free while others draft.

/// One drafter of a mix.
struct MixPart {
  std::size_t trace = 0;  ///< index into the traces
  int gamma = 1;          ///< longest draft
};
struct Mix {
  std::string name;
  std::vector<MixPart> parts;  ///< in the order in which they are asked
};
/// Reads "PART+PART+...", where PART is CASE or CASE:GAMMA, and CASE is the id of a trace, or a part of
/// the id of exactly one trace. GAMMA is the longest draft of the trace if it is left out. Throws Error for
/// an unknown or ambiguous case, a gamma that the trace does not have, fewer than two drafters, and traces of
/// different texts.
Mix parse_mix(const std::string& text, std::span<const Trace> traces);

/// What a replay of a mix counts.
struct MixReplayed {
  std::vector<Replayed> by_part;  ///< [parts]: the steps that this part drafted; the last one also has those
                                  ///< in which no part found a draft
  std::vector<double> asked;      ///< [parts]: steps in which this part found nothing, so the next was asked
  Replayed all() const;           ///< the steps of all parts
};
void add_replayed(MixReplayed& sum, const MixReplayed& one);

/// Replays the texts with these indices.
MixReplayed replay_mix(std::span<const Trace> traces, const Mix& mix, std::span<const std::size_t> texts);

/// The time of all steps in nanoseconds. `prices`: [parts], of the drafters of the mix.
double mix_time(const MixReplayed& counts, std::span<const StepPrices> prices);

/// Replays every mix. Returns [{"mix": name, "certainty", "parts": [{"case", "gamma", "steps": share of the
/// steps}], "tau", "tau_ci95", "drafted_per_step", "draft_utilization" | null, "speedup" | null,
/// "speedup_ci95" | null, "ms_per_token" | null}]. Times and speedups are null unless `calibration` has
/// costs of the cases of all parts.
nlohmann::json replayed_mixes(std::span<const Trace> traces, const nlohmann::json& calibration,
                              const std::vector<Mix>& mixes);

std::string replayed_mixes_text(const nlohmann::json& mixes);  ///< a table for people

}  // namespace speclab
