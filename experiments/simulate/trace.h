#pragma once

#include <memory>
#include <string>
#include <vector>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// A trace says what a drafter proposes at every position of a text. It is a case with the option
/// "emit_at_most": 1 (configs/trace.json): every step drafts, is judged, and then emits one token. From a
/// trace, replay.h computes what the drafter would do with drafts that are at most as long.

/// The draft at one position: a chain, and how much of it the text confirms.
struct TracedDraft {
  std::vector<double> confidence;  ///< [drafted]: the drafter's probability of each token; -1: not known
  std::vector<double> entropy{};   ///< [drafted]: entropy of the row of each token, in nats; -1: not known
  int matching = 0;                ///< number of tokens before the first that differs from the text
  int drafted() const { return static_cast<int>(confidence.size()); }
};

/// One text with the drafts at all its positions.
struct TracedText {
  std::string prompt;
  int turn = 0;                     ///< turn of the conversation
  std::vector<TracedDraft> drafts;  ///< [tokens - 1]; drafts[i] was made when token i was pending
};

/// The trace of one drafter.
struct Trace {
  std::shared_ptr<const CaseData> data;  ///< the case of the trace
  std::vector<TracedText> texts;
};

/// Reads the traces of a run, from repeat 0: one for each case that has a lossless rule, drafts with
/// emit_at_most 1 and has a reference. Throws Error when the run has no such case, when a draft branches,
/// when a step does not emit exactly one token, and when a text differs from that of the reference although
/// equality is promised.
std::vector<Trace> read_traces(const RunData& run);

}  // namespace speclab
