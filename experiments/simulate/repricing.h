#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/metrics/run_data.h"
#include "experiments/simulate/device_file.h"

namespace speclab {

/// Answers what a run would have cost on another device. The drafts and verdicts of its recorded steps stay
/// as they are; only the times come from the device. So acceptance is measured here, and cost comes from
/// the device:
///   time of a step  = forwards of the draft + t(rows of the step) + step time outside the forwards
///   time of a token = mean time of a step / tau
///   speedup         = time of an autoregressive step / time of a token
/// What a step costs besides forwards (acceptance, bookkeeping) comes from the device. Drafting without a
/// model runs on the host and costs what it cost in the run. A target that drafts for itself spends the same
/// share of a target forward per drafted token as in the run. All sequences of a batch take their steps at
/// the same time, and tau counts the tokens of one sequence. Drafts without a model are made for one sequence
/// after the other; the step time outside the forwards is counted once.
///
/// The device may be another run, or a table exported from a run. If its calibration knows the case and its
/// reference, the costs of the case at batch 1 come from that calibration. They never come from the lines of
/// that run, so its measured speedups can be compared with the simulated ones.

/// Prices every case of a run that has a reference. Returns
///   {"device", "kind", "source", "error", "simulation": true,
///    "cases": [{"case", "batch", "tau", "here": measured speedup of the run | null,
///               "speedup", "speedup_ci95": [lo, hi] | null (bootstrap over prompts), "step_ms",
///               "ms_per_token": time of a step / tokens that all sequences emit in it,
///               "joules_per_token": x | null without watts,
///               "there": measured speedup on the device | null, "error": speedup / there - 1 | null,
///               "problem": null | why there is no speedup; tau and the simulated numbers are then null}],
///    "drafts": [{"draft", "batch", "case": the case with the longest chains of this draft, "alpha", "c",
///               "best_gamma", "at_limit": whether longer chains than those of the run might be better,
///               "speedup", "break_even_alpha": the alpha below which no gamma gains, if every token had the
///               same alpha | null if no gamma gains even at alpha 1}]}
/// "drafts" has an entry for each batch and each draft model that is the only draft of a case with chains of
/// constant length, or of a trace. Entries that the device cannot price are left out. Throws Error for a
/// batch below 1.
nlohmann::json repriced(const RunData& run, const SimulatedDevice& device, const std::vector<int>& batches);

/// The tables of repriced() for people. The first line says that the device is simulated.
std::string repriced_text(const nlohmann::json& simulation);

}  // namespace speclab
