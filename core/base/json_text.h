#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace speclab {

/// Parses strict JSON: one value with nothing after it, no comments, no repeated key in an object, at most
/// 200 levels of nesting (code that copies, prints or destroys a value recurses once per level). Throws Error
/// with `name` (usually a file) and, except for repeated keys and too many levels, with line and column.
/// Lines and columns count from 1; a column is a byte.
nlohmann::json parse_json(std::string_view text, const std::string& name);

/// Limits on a JSON text from an untrusted file, which keep the memory for parsing close to the text's size.
struct JsonLimits {
  int depth;                  ///< levels of nested objects and lists; the outermost object is level 1
  std::size_t members;        ///< members of the outermost object
  std::size_t inner_members;  ///< members of any other object
  std::size_t items;          ///< values in a list
  std::size_t token_bytes;    ///< bytes of a key, of a text, or of white space and the number in it, if any
};

/// Parses a JSON object as parse_json does and calls `member` for each of its members, in the order
/// of the text. To save memory, a member that is an object or a list is freed after its call. Throws Error
/// for everything that parse_json refuses, for a value that is not an object, and as soon as a limit is
/// exceeded. `member` may have been called before the Error.
void parse_json_members(
    std::string_view text, const std::string& name, const JsonLimits& limits,
    const std::function<void(const std::string& key, const nlohmann::json& value)>& member);

/// The name of a value's type, for error messages: "object", "array", "string", "number", "boolean", "null".
std::string_view json_type_name(const nlohmann::json& value);

}  // namespace speclab
