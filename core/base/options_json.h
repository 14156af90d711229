#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "core/base/options.h"

namespace speclab {

/// Sets the fields that `object` names; the others keep their defaults. `where` locates the object for
/// messages, a file and JSON pointer: "configs/a.json: /cases/0". Keys in `others` are somebody else's and
/// left alone. Throws Error, with the pointer of the culprit: not an object, a key that is no option (nearest
/// known name suggested), a wrong type, a value out of range. Fields may be partly set then.
void parse_options(const OptionFields& fields, const nlohmann::json& object, std::string_view where,
                   std::span<const std::string> others = {});

/// All fields with their present values, as an object.
nlohmann::json echo_options(const OptionFields& fields);

/// `where` + "/" + key, escaped as a JSON pointer (RFC 6901).
std::string json_pointer(std::string_view where, std::string_view key);

}  // namespace speclab
