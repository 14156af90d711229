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
  std::optional<bool> matches;  ///< null: equality is not promised (another sample of the law, or lossy)
  /// Index of the first token or logits row that differs; null when none differs or nothing is promised.
  std::optional<int> first_divergence;
};

/// What a line with these options promises to share with its reference. Loss class L2: token ids and logits
/// rows. Coupled sampling: token ids. Otherwise nothing.
Promise promise_of(const GenerationOptions& generation);

/// Compares a line with its reference, as far as the promise goes.
ReferenceCheck check_against(const LineRecord& line, const LineRecord& reference, Promise promise);

/// Compares every line that promises something with the first repeat of its reference and fills in
/// matches_reference and first_divergence. Either of the two may have been measured first. The later repeats
/// of a reference are compared with its own first repeat. No line counts without a check: a line is marked as
/// failed when its reference failed, and is removed when its reference is missing. `lines` is keyed by case;
/// `reference_of` maps each case to its reference, and a reference to itself.
void check_record(std::map<std::string, std::vector<LineRecord>>& lines,
                  const std::map<std::string, std::string>& reference_of);

/// The first index at which two texts differ. The length of the shorter one when it is a prefix of the other;
/// null when they are equal.
std::optional<int> first_difference(TokenSpan a, TokenSpan b);

}  // namespace speclab
