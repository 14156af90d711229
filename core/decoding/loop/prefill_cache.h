#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/measure/work.h"
#include "core/model/net/model.h"
#include "core/model/net/session.h"

namespace speclab {

/// What a prefill took.
struct PrefillCost {
  std::int64_t ns = 0;  ///< wall time
  Work work;
};
/// Prefills a session from its first position on. logits: of the last token, [head_rows]. taps: as in
/// Session::prefill; what they call is in the time. Throws Error as Session::prefill does.
PrefillCost timed_prefill(Session& session, TokenSpan prompt, float* logits,
                          const PromptTaps* taps = nullptr);

/// Prefills of the target that decode loops share: cases of an experiment run one after another on the same
/// prompt, and what the target makes of a prompt does not depend on how the text is drafted. Each sequence
/// starts from a copy, the one whose prefill was run too, so that all start alike. Keeps the last prompt of
/// each turn of a conversation.
class PrefillCache {
 public:
  struct Prefilled {
    std::vector<Token> prompt;
    std::unique_ptr<Session> session;  ///< the prompt, committed
    std::vector<float> logits;         ///< of its last token, [vocab]
    PrefillCost cost;                  ///< when it was run
  };
  /// The prefill of `prompt` as turn number `turn` (from 0), run now unless it is the last one of that turn.
  /// Valid until the next call. Throws Error as Session::prefill does.
  const Prefilled& prefill(const Model& target, TokenSpan prompt, int turn, int capacity);

 private:
  std::vector<Prefilled> turns_;
};

}  // namespace speclab
