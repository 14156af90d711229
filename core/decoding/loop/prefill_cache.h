#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/measure/work.h"
#include "core/model/net/model.h"
#include "core/model/net/session.h"

namespace speclab {

/// The cost of a prefill.
struct PrefillCost {
  std::int64_t ns = 0;  ///< wall time
  Work work;
};
/// Empties the session, prefills it and measures the cost. `logits` gets the row of the last token,
/// [head_rows]. `taps` are those of Session::prefill; the time includes their callbacks. Throws Error as
/// Session::prefill does.
PrefillCost timed_prefill(Session& session, TokenSpan prompt, float* logits,
                          const PromptTaps* taps = nullptr);

/// Shares prefills of the target between decode loops. The cases of an experiment run one after another on
/// the same prompt, and the target's KV cache of a prompt does not depend on the strategy. Every sequence
/// starts from a copy, also the first one, so that all start alike. For each turn number of a conversation,
/// the cache keeps one prompt: the last one that was prefilled.
class PrefillCache {
 public:
  struct Prefilled {
    std::vector<Token> prompt;
    std::unique_ptr<Session> session;  ///< has the prompt committed
    std::vector<float> logits;         ///< row of the last token, [head_rows]
    PrefillCost cost;                  ///< cost of the prefill when it was run
  };
  /// Returns the prefill of `prompt` as turn number `turn` (from 0). Runs the prefill if the cache does not
  /// hold this prompt for this turn, target and capacity. The result is valid until the next call. Throws
  /// Error as Session::prefill does.
  const Prefilled& prefill(const Model& target, TokenSpan prompt, int turn, int capacity);

 private:
  std::vector<Prefilled> turns_;
};

}  // namespace speclab
