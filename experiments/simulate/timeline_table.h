#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/metrics/run_data.h"
#include "experiments/simulate/device_file.h"

namespace speclab {

/// The timelines that are shown after serial drafting.
enum class ShownTimelines {
  serial,   ///< none
  overlap,  ///< PEARL and AMUSD: draft and target on two devices
  dsi,      ///< DSI: several copies of the target
};

/// Which timelines to show.
struct TimelineWish {
  ShownTimelines shown = ShownTimelines::serial;
  int servers = 0;    ///< DSI: copies of the target; 0: as many as needed
  int lookahead = 0;  ///< DSI: drafted tokens between two verifications; 0: the fastest number
};

/// Predicts, for each draft of a run, the speedup of serial drafting and then of the timelines of the wish,
/// in which drafting and verification overlap. There each model has its own copy of `device`
/// (core/simulate/timelines/overlap.h). Acceptance is i.i.d. with the alpha that the run measured; the costs
/// come from the device:
///   draft:        time of drafting one token in the case with the longest chains of this draft
///   verification: t(n) + the time of a step outside the forwards
/// Returns
///   {"device", "kind", "source", "error", "simulation": true,
///    "timelines": [{"timeline": "serial" | "pearl" | "amusd" | "dsi", "draft", "case", "alpha", "c",
///      "tokens": gamma or lookahead, the fastest one unless the wish has it | null (amusd), "devices",
///      "us_per_token", "speedup": over autoregressive decoding on one device, "played": the speedup of
///      play_timeline() with random coins, "horizon_us", "segments": [{"device": 0 for the draft, "start_us",
///      "end_us", "rows", "wasted"}] of the played text up to horizon_us, "problem": null | why not
///      simulated}]}
/// With a problem, the numbers that could not be computed are null. Problems are: no alpha, no length that is
/// faster than autoregressive decoding, or a model that the device cannot price. Throws Error if the run has
/// no draft model with chains of constant length.
nlohmann::json timelines(const RunData& run, const SimulatedDevice& device, const TimelineWish& wish);

/// A table for people, and a picture of each timeline's beginning.
std::string timelines_text(const nlohmann::json& simulation);

}  // namespace speclab
