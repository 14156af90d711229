#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "experiments/metrics/run_data.h"
#include "experiments/simulate/replay/certainty.h"

namespace speclab {

/// A trace of trees says at every position of a text which rank the draft model gave to the text's next
/// token. It is a trace (trace.h) of a strategy that drafts trees of any shape, with children that are the
/// draft's best tokens. One level of k children is enough, whatever the depth of the trees that are to be
/// replayed. The reason: a draft model depends on the text alone, so what it would propose below an accepted
/// child is what it proposed at the next position of the trace.
///
/// The children are the draft's best tokens if the option "children" is "best", and also if it is
/// "without_replacement" and the draft's temperature is 0.

/// One text with the ranks of its tokens.
struct RankedText {
  std::string prompt;
  std::uint64_t seed = 0;
  int turn = 0;  ///< turn of the conversation
  /// [tokens - 1]: the rank of token i + 1 of the text among the draft's tokens after token i, from 0; -1 if
  /// it is none of the drafted ones.
  std::vector<int> ranks;
  std::vector<double> confidence;  ///< [tokens - 1]: StepRecord::root_confidence; -1: not known
  /// The depth of the drafts at position i is at most depth_limit - i. depth_limit is the largest number of
  /// tokens that the turn may have minus 2, or the first position without a draft, whichever is smaller.
  int depth_limit = 0;
};

/// The ranks that one draft model gave.
struct RankTrace {
  std::shared_ptr<const CaseData> data;  ///< the case of the trace
  std::vector<RankedText> texts;
  int width = 0;  ///< largest number of children of the pending token; ranks 0 to width - 1 are known
  Certainty certainty = Certainty::exact;  ///< what its replays are: exact, or expectations
};

/// Whether the children that a case drafts are the best tokens of the draft model, by the options of the
/// case.
bool drafts_best_tokens(const CaseData& data);

/// Reads the traces of trees of a run, from repeat 0, without those that cannot be replayed
/// (why_not_replayed). The result is empty if the run has no such traces. Throws Error as require_trace() and
/// require_known_version() do, and for a text with a draft after a position without one.
std::vector<RankTrace> read_rank_traces(const RunData& run);

}  // namespace speclab
