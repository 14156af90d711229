#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace speclab {

/// Parses strict JSON (no comments, one value, nothing after it, no key twice in an object, at most 200
/// levels deep, because values are copied, printed and destroyed by recursion). Throws Error that names
/// `name` (a file, usually) with line and column, both counted from 1, columns in bytes.
nlohmann::json parse_json(std::string_view text, const std::string& name);

/// What a text may hold, so that reading one that somebody made up costs little more than the text itself.
struct JsonLimits {
  int depth;                  ///< of values; those of the outermost object are at depth 1
  std::size_t members;        ///< of the outermost object
  std::size_t inner_members;  ///< of any other
  std::size_t items;          ///< of a list
  std::size_t token_bytes;    ///< of a key, a text, a number, the white space between two of them
};

/// Parses a JSON object as parse_json does and gives its members away one after the other, in the order of
/// the text; none that is an object is kept. Throws Error for what parse_json refuses, for another value than
/// an object, and for what is beyond a limit, before it is stored; members may have been given away by then.
void parse_json_members(
    std::string_view text, const std::string& name, const JsonLimits& limits,
    const std::function<void(const std::string& key, const nlohmann::json& value)>& member);

/// "object", "array", "string", "number", "boolean", "null", for messages.
std::string_view json_type_name(const nlohmann::json& value);

}  // namespace speclab
