#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

/// Checks of single values of a config.
namespace speclab {

/// Throws the Error that the value at `where` ("a.json: /seeds") is not what was expected.
[[noreturn]] void wrong_value(const std::string& where, const nlohmann::json& value, std::string expected);

/// True for an integer of 0 or more.
bool is_natural(const nlohmann::json& value);

/// "from" of a model in a config: where the model can be had. Throws Error when it is no text.
std::string read_from(const nlohmann::json& model, const std::string& where);

}  // namespace speclab
