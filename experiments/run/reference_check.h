#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/measure/run_result.h"
#include "core/decoding/rules/accept.h"
#include "core/decoding/loop/generation.h"

namespace speclab {

/// How a line stands to the autoregressive line of the same prompt and seed.
struct ReferenceCheck {
  std::optional<bool> matches;  ///< null: equality is not promised (another sample of the law, or lossy)
  std::optional<int> first_divergence;  ///< first token, or logits row, that differs; null when none does or
                                        ///< nothing is promised
};

/// L2: token ids and the logits rows behind them. Coupled sampling: ids. Otherwise nothing.
Promise promise_of(const GenerationOptions& generation);

/// Compares what is promised.
ReferenceCheck check_against(const LineRecord& line, const LineRecord& reference, Promise promise);

/// Compares every line of a record that says what it promises with the first repeat of its reference,
/// whichever of the two was measured first, and fills in matches_reference and first_divergence. A reference
/// is held against its own first repeat. There is no number without a check: a line becomes a failed one
/// where its reference failed, and is taken out where its reference is not there yet. `lines`: by case;
/// `reference_of`: the reference of each case, of a reference itself.
void check_record(std::map<std::string, std::vector<LineRecord>>& lines,
                  const std::map<std::string, std::string>& reference_of);

/// First index at which two texts differ; the shorter length when one is a prefix of the other; null when
/// equal.
std::optional<int> first_difference(TokenSpan a, TokenSpan b);

}  // namespace speclab
