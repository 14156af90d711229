#pragma once

#include <optional>

#include "core/measure/run_result.h"
#include "core/spec/accept.h"
#include "core/spec/generation.h"

namespace speclab {

/// How a line stands to the autoregressive line of the same prompt and seed.
struct ReferenceCheck {
  std::optional<bool> matches;  ///< null: equality is not promised (another sample of the law, or lossy)
  std::optional<int> first_divergence;  ///< first token, or logits row, that differs; null when none does or
                                        ///< nothing is promised
};

/// L2: token ids and the logits rows behind them are equal. Coupled sampling: ids are. Otherwise nothing is
/// promised.
ReferenceCheck check_against(const LineRecord& line, const LineRecord& reference,
                             const GenerationOptions& generation);

/// First index at which two texts differ; the shorter length when one is a prefix of the other; null when
/// equal.
std::optional<int> first_difference(TokenSpan a, TokenSpan b);

}  // namespace speclab
