#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "experiments/simulate/replay/rank_trace.h"
#include "experiments/simulate/trace.h"

namespace speclab {

/// Compares replayed taus, speedups and times of prompts with those of `measured`, a run of the same prompts.
/// Takes each case that has a reference and that agrees with a trace in strategy, draft, rule and options.
/// The draft length, the schedule, the tree and the budget may differ. Leaves out a case whose setting
/// replayed() or replay_trees() would refuse, a case whose schedule needs costs, a case of trees with a
/// budget or without its tree file, a case that is a trace itself, and a case whose prompts are not those of
/// the trace.
///
/// Returns {"cases": [{"case", "tau", "replayed_tau", "speedup" | null, "replayed_speedup" | null,
///                     "error": replayed_speedup / speedup - 1 | null,
///                     "prompts": [{"prompt", "ms": decoding time of the prompt's texts, all seeds together,
///                                  median over repeats; "replayed_ms", "error": replayed_ms / ms - 1}];
///                                  empty
///                                 without calibrated costs and for a case with another text,
///                     "prompt_errors": {"count", "median", "largest"} | null}],
///          "speedup_errors", "prompt_errors": {"count", "median", "largest", "case", "prompt"} | null}
/// "median" and "largest" are those of the absolute errors; "case" and "prompt" say where the largest one is.
/// "prompt" is null for an error of a case.
///
/// The time of a prompt is not corrected for the drift of the machine: it also contains how fast the machine
/// was while that prompt was decoded.
nlohmann::json replay_check(std::span<const Trace> traces, std::span<const RankTrace> rank_traces,
                            const nlohmann::json& calibration, const RunData& measured);

std::string replay_check_text(const nlohmann::json& comparison);  ///< tables for people

}  // namespace speclab
