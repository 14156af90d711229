#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

/// Checks of single values of a config.
namespace speclab {

/// Throws an Error that says: the value at `where` ("a.json: /seeds") is not what was expected.
[[noreturn]] void wrong_value(const std::string& where, const nlohmann::json& value, std::string expected);

/// True for an integer of 0 or more.
bool is_natural(const nlohmann::json& value);

/// Reads "from" of a model in a config, a text that says where to get the model. Throws Error if "from" is
/// not a text.
std::string read_from(const nlohmann::json& model, const std::string& where);

}  // namespace speclab
