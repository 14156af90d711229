#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/model/toy/markov_table.h"

namespace speclab {

/// Reads the value of "markov", such as {"vocab": 16, "order": 1, "seed": 1, "sharpness": 2}. Keys that it
/// lacks keep their defaults. Throws Error with the JSON pointer of a value that is wrong, and for a chain
/// with too many contexts.
toy::MarkovSpec parse_markov(const nlohmann::json& value, const std::string& where);

/// Reads the "markov" of a draft whose target is a toy. Keys that it lacks are those of the target, so
/// {"noise": 0.3} is the target's table with noise. Throws Error if vocab or order differ from the target's,
/// because both tables must have the same tokens and the same contexts.
toy::MarkovSpec parse_markov_draft(const nlohmann::json& value, const std::string& where,
                                   const toy::MarkovSpec& target);

/// All fields, in the form that parse_markov reads.
nlohmann::json to_json(const toy::MarkovSpec& spec);

/// The name of a draft that has none: "markov-noise=0.3" for {"noise": 0.3}.
std::string markov_name(const nlohmann::json& value);

}  // namespace speclab
