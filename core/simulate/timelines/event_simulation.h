#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/theory/step_costs.h"

/// Plays decoding with one draft model and one or several copies of the target, event by event. An
/// event is the end of a draft forward or of a target forward. The simulation does not use the formulas in
/// overlap.h, and takes any acceptance, not only an i.i.d. one.
namespace speclab::simulate {

/// When forwards are launched; overlap.h describes each timeline.
enum class Timeline {
  serial,       ///< gamma tokens are drafted, then verified; a full acceptance adds a bonus token
  pearl,        ///< drafting and verification side by side, each round as long as the slower one
  post_verify,  ///< pearl, but after a correction nothing is verified until gamma tokens are drafted
  amusd,        ///< both models run without pause; a target forward feeds what has been drafted
  dsi,          ///< a verification after every `tokens` drafted tokens, on a free one of several servers
};
std::string_view to_string(Timeline timeline);  ///< "serial", "pearl", "post_verify", "amusd", "dsi"

/// What is played.
struct TimelineSetting {
  Timeline timeline = Timeline::serial;
  int tokens = 1;           ///< gamma (serial, pearl, post_verify) or lookahead (dsi)
  int servers = 1;          ///< copies of the target (dsi)
  double draft = 1;         ///< time of a draft forward, which drafts one token
  theory::RowTimes verify;  ///< time of a target forward by number of rows
};

/// What one device does from `start` to `end`.
struct TimelineSegment {
  int device = 0;  ///< 0: the draft model; 1, 2, ...: the copies of the target
  double start = 0, end = 0;
  int rows = 1;         ///< rows of the forward
  bool wasted = false;  ///< its tokens were dropped, or it was ended early
};

/// What was played.
struct TimelineRun {
  double time = 0;  ///< when the last emitted token was known
  std::int64_t tokens = 0, draft_forwards = 0, target_forwards = 0;
  std::vector<TimelineSegment> segments;  ///< of the beginning of the text, in the order of their launch
};

/// Plays the timeline until at least `tokens` tokens are emitted. accept() is called once for each judged
/// token, in the order of the text, and says whether it is accepted. Keeps the first `most_segments`
/// segments. Of two events at the same time, the end of a draft forward comes first. Throws Error if the
/// setting has no token, no server or a draft time <= 0, and for amusd and dsi if draft > verify(1).
TimelineRun play_timeline(const TimelineSetting& setting, const std::function<bool()>& accept,
                          std::int64_t tokens, std::size_t most_segments = 0);

}  // namespace speclab::simulate
