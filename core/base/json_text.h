#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace speclab {

/// Parses strict JSON (no comments, one value, nothing after it, no key twice in an object, at most 200 levels deep,
/// because values are copied, printed and destroyed by recursion). Throws Error
/// that names `name` (a file, usually) with line and column, both counted from 1, columns in bytes.
nlohmann::json parse_json(std::string_view text, const std::string& name);

/// "object", "array", "string", "number", "boolean", "null", for messages.
std::string_view json_type_name(const nlohmann::json& value);

}  // namespace speclab
