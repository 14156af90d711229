#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/model/net/model.h"
#include "experiments/analysis/table.h"

namespace speclab {

/// Times of prompts of so many tokens, until the last one's logits are on the host, every sample in ns:
/// [{"tokens", "own_ns": [], "library_ns": []}]. own_ns: in pieces too short for the backend's way for
/// prompts (Backend::prompt_rows), so by the operations that decode; library_ns: whole, where it has one.
/// Both ways take turns, and one round before the first repeat warms up.
nlohmann::json prompt_times(const Model& model, const std::vector<int>& tokens, int repeats);

Table prompt_table(const nlohmann::json& times);

}  // namespace speclab
