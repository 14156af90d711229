#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "experiments/metrics/run_data.h"
#include "experiments/simulate/replay/certainty.h"

namespace speclab {

/// A trace says what a drafter proposes at every position of a text. It is a case with the option
/// "emit_at_most": 1 (configs/trace.json, `speclab trace`): every step drafts, is judged, and then emits one
/// token. From a trace, replay.h computes what the drafter would do with drafts of at most the same length.
///
/// At temperature 0 and with Gumbel coins the text does not depend on the drafts. Then the recorded draft at
/// a position is the one that a real step makes there, and the text says how much of it is accepted. Above
/// temperature 0 with independent coins a real step has another text after it. Then the drafts of a trace are
/// samples with the law of real drafts (why_not_expected() says why), and replays of them are expectations.
/// The draft of a draft model is put together from several steps: the token that was drawn and judged at each
/// position, up to the first one that was rejected, and then the tokens that were drawn after that one.

/// The draft at one position: a chain, and how much of it the text confirms.
struct TracedDraft {
  std::vector<double> confidence;  ///< [drafted]: the drafter's probability of each token; -1: not known
  std::vector<double> entropy{};   ///< [drafted]: entropy of the row of each token, in nats; -1: not known
  /// [drafted, any width]: the largest probabilities of each token's row, descending; empty: not known
  std::vector<float> top{};
  int matching = 0;  ///< number of tokens before the first one that would be rejected
  int drafted() const { return static_cast<int>(confidence.size()); }
  /// The largest probabilities of the row of token i < drafted(); empty: not known.
  std::span<const float> top_of(std::size_t i) const {
    const std::size_t width = top.size() / confidence.size();
    return std::span(top).subspan(i * width, width);
  }
};

/// One text with the drafts at all its positions.
struct TracedText {
  std::string prompt;
  std::uint64_t seed = 0;
  int turn = 0;                     ///< turn of the conversation
  std::vector<TracedDraft> drafts;  ///< [tokens - 1]; drafts[i] was made when token i was pending
};

/// The trace of one drafter.
struct Trace {
  std::shared_ptr<const CaseData> data;  ///< the case of the trace
  std::vector<TracedText> texts;
  Certainty certainty = Certainty::exact;  ///< what its replays are: exact, or expectations
};

/// True if the case is a trace: it has a lossless rule, drafts with emit_at_most 1 and has a reference.
bool is_trace(const CaseData& data);

/// Checks what every reader of a trace relies on. Throws Error when a text of the trace differs from the
/// reference's text although equality is promised, and when a step does not emit exactly one token.
void require_trace(const CaseData& data);

/// Throws Error if the record of the run is of a newer version than this program knows (kRowDetailsVersion).
void require_known_version(const RunData& run);

/// Why a trace of this case cannot be replayed; "" if it can. Its drafts may depend on earlier steps. Or its
/// text depends on where steps begin (text_follows_steps), and its rule or its drafts are not of a kind whose
/// replay is an expectation.
std::string why_not_replayed(const CaseData& data);

/// Whether two traces have the same texts. Traces whose replays are expectations have texts of their own.
bool same_texts(const Trace& a, const Trace& b);

/// Reads the traces of a run, from repeat 0: one for each case that is a trace of chains. Traces of trees
/// (replay/rank_trace.h) and those that cannot be replayed (why_not_replayed) are left out; the result is
/// empty if the run has only such traces. Throws Error when the run has no trace at all, when a draft
/// branches and the strategy does not draft trees of any shape, and when require_trace() or
/// require_known_version() does.
std::vector<Trace> read_traces(const RunData& run);

}  // namespace speclab
