#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/config/experiment.h"

namespace speclab {

/// How many of the largest probabilities of each row a trace with TracedEvidence::top records.
inline constexpr int kTracedTop = 10;

/// The numbers that schedules look at. The drafters of chains compute them for each token at temperature 0.
enum class TracedEvidence {
  confidence,  ///< the probability of the token
  entropy,     ///< also the entropy of its row
  top,         ///< also the kTracedTop largest probabilities of its row, for controllers
  none,
};

/// What `speclab trace` may change in a config.
struct TraceWish {
  std::vector<std::string> settings;  ///< --set
  std::string filter;                 ///< --filter; "": all cases
  int longest = 0;                    ///< tokens of each draft; 0: as the longest case that is traced with it
  int width = 8;                      ///< children of the pending token in traces of trees
  TracedEvidence evidence = TracedEvidence::confidence;
  /// true: a case for which plan_trace() would throw Error, such as one with a lossy rule, is left out with a
  /// note.
  bool leave_out = false;
};

/// How a config becomes a trace.
struct TracePlan {
  std::vector<std::string> settings;  ///< all --set for `speclab run`, those of the wish included
  std::vector<std::string> notes;     ///< cases that were left out, and why
};

/// Plans the run that records a config as a trace. Each step drafts as much as it may, is judged, and emits
/// one token (emit_at_most 1). The record keeps row details (LoopOptions::row_details). There is one repeat,
/// no budget and no teacher-forced estimate. Cases that differ only in length, schedule, tree or budget
/// become one case. Chains get the longest length and a schedule that never stops them. Trees get one level
/// of wish.width children, see replay/rank_trace.h. The autoregressive references are added as always.
///
/// Above temperature 0 with independent coins the replays of the trace are expectations (certainty.h).
///
/// Throws Error for a lossy rule, for independent coins above temperature 0 with a rule that does not judge
/// token by token, for a config without a case that can be traced, and as load_experiments() does. A case is
/// left out with a note if its drafts depend on earlier steps, if its strategy drafts trees of its own shape,
/// if its trees have children that are not the draft's best tokens, and for the reasons of
/// why_not_replayed().
TracePlan plan_trace(const std::string& config, const TraceWish& wish);
/// Does the same for a config that is in memory already. Messages call the config `name`.
TracePlan plan_trace(nlohmann::json config, const std::string& name, const TraceWish& wish);

/// Throws Error unless the folder holds a trace that this version may resume.
void require_trace_folder(const std::string& folder);

}  // namespace speclab
