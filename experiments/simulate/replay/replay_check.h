#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/simulate/replay/checked_replay.h"

namespace speclab {

/// A comparison of replays with a run. All of it must live as long as the comparison.
struct ReplayCheck {
  ReplaySources sources = {};         ///< what the predictions come from
  const RunData* measured = nullptr;  ///< the run to compare with; it has the prompts of the traces
  /// The run whose calibration prices the steps; null: the measured run itself (CheckPrices).
  const RunData* prices = nullptr;
  const RunData* fitted_to =
      nullptr;  ///< the run that the laws of `sources` are fitted to; null without laws
};

/// Compares replayed taus, speedups and times of prompts with those of the measured run. Takes each case that
/// has a reference and that agrees with a trace in strategy, draft, rule and options. The draft length, the
/// schedule, the tree and the budget may differ. A case that no trace predicts is taken if a law is about it
/// (FittedLaw::about). Leaves out a case whose setting replayed() would leave out, a case whose
/// schedule needs costs, a case of trees with a budget or without its tree file, a case that is a trace
/// itself, and a case whose prompts are not the prompts of the trace.
///
/// Returns {"cases": [{"case", "certainty": see Certainty,
///                     "calibrated": whether its costs are its own (CheckPrices),
///                     "held_out": true if neither the calibration nor, for a law, the fit has seen a prompt
///                                 of the case (shared_prompts); always false with the measured run's own
///                                 calibration,
///                     "tau", "replayed_tau", "speedup" | null, "replayed_speedup" | null,
///                     "error": replayed_speedup / speedup - 1 | null,
///                     "prompts": [{"prompt", "held_out",
///                                  "ms": decoding time of the prompt's texts, all seeds together, median
///                                  over repeats; "replayed_ms", "error": replayed_ms / ms - 1}]; empty
///                                  without costs, for a case with a text that differs from its reference,
///                                  and for predictions that are not exact, because such a prediction says
///                                  nothing about a single text,
///                     "prompt_errors": for the prompts of the case, as below}],
///          "left_out": [{"case", "reason"}]: cases that a trace is about but cannot replay, such as a tree
///                      with more children than the trace has ranks,
///          "speedup_errors", "uncalibrated_speedup_errors", "held_out_speedup_errors", "prompt_errors",
///          "held_out_prompt_errors": {"count", "median", "largest", "case", "prompt"} | null}
/// "median" and "largest" are taken over the absolute errors; "case" and "prompt" say where the largest one
/// is. "prompt" is null for an error of a case.
///
/// The time of a prompt is not corrected for the drift of the machine, so it also depends on how fast the
/// machine was while that prompt was decoded.
nlohmann::json replay_check(const ReplayCheck& check);

std::string replay_check_text(const nlohmann::json& comparison);  ///< tables for people

}  // namespace speclab
