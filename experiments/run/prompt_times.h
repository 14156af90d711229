#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/model/net/model.h"
#include "experiments/analysis/table.h"

namespace speclab {

/// Times the prefill of prompts with these numbers of tokens, until the last token's logits are on the host.
/// All samples are in ns: [{"tokens", "own_ns": [], "library_ns": []}].
/// A backend may have a library for long prompts (Backend::prompt_rows). `library_ns` feeds the prompt as a
/// whole, through that library, and is missing where the backend has none. `own_ns` feeds pieces that are too
/// short for the library, so that the decode kernels run. Both take turns, and an untimed round before the
/// first repeat warms up.
nlohmann::json prompt_times(const Model& model, const std::vector<int>& tokens, int repeats);

/// The medians as a table.
Table prompt_table(const nlohmann::json& times);

}  // namespace speclab
