#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/measure/run_result.h"
#include "core/decoding/rules/accept.h"
#include "core/decoding/loop/generation.h"

namespace speclab {

/// The result of comparing a line with the autoregressive line of the same prompt and seed.
struct ReferenceCheck {
  /// Null when equality is not promised, because the line is another sample or its rule is lossy.
  std::optional<bool> matches;
  /// Index of the first token or logits row that differs; null when none differs or nothing is promised.
  std::optional<int> first_divergence;
};

/// Returns what must be equal in a line with these options and in its reference. Loss class L2: token ids and
/// logits rows. Loss class L1 with coupled sampling: token ids. Otherwise: nothing.
Promise promise_of(const GenerationOptions& generation);

/// Compares everything that `promise` covers in a line and in its reference.
ReferenceCheck check_against(const LineRecord& line, const LineRecord& reference, Promise promise);

/// Compares every line that promises something with the first repeat of its reference and fills in
/// matches_reference and first_divergence. It does not matter which of the two lines was measured first. The
/// later repeats of a reference are compared with its own first repeat. A line that promises something is
/// never kept without a check. It is marked as failed when its reference failed, and is removed when its
/// reference is missing. `lines` is keyed by case; `reference_of` maps each case to its reference, and a
/// reference to itself.
void check_record(std::map<std::string, std::vector<LineRecord>>& lines,
                  const std::map<std::string, std::string>& reference_of);

/// Returns the first index at which two texts differ. If one text is a prefix of the other, this is the
/// length of the shorter one. Null when the texts are equal.
std::optional<int> first_difference(TokenSpan a, TokenSpan b);

}  // namespace speclab
