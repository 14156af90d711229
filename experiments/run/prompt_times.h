#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/model/net/model.h"
#include "experiments/analysis/table.h"

namespace speclab {

/// Times prefills. For each number in `tokens`, it times the prefill of a prompt of that length, until the
/// logits of the last token are on the host. All samples are in ns:
///   [{"tokens", "own_ns": [], "library_ns": []}]
/// A backend may have a library for long prompts (Backend::prompt_rows). For `library_ns`, the whole prompt
/// is fed at once, so that the library computes it if it is long enough; the field is missing where the
/// backend has no library. For `own_ns`, the prompt is fed in pieces that are too short for the library, so
/// that the decode kernels run. The two ways take turns, and an untimed round before the first repeat warms
/// up. `keep` gets the result so far after each length.
nlohmann::json prompt_times(const Model& model, const std::vector<int>& tokens, int repeats,
                            const std::function<void(const nlohmann::json&)>& keep = {});

/// Formats the medians of prompt_times() as a table.
Table prompt_table(const nlohmann::json& times);

}  // namespace speclab
