#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "core/base/options.h"

namespace speclab {

/// Sets the fields that `object` names; the others keep their defaults. `where` locates the object in
/// messages: file and JSON pointer, "configs/a.json: /cases/0". Keys in `others` belong to another reader and
/// are skipped. Throws Error with the JSON pointer of the faulty value: not an object, an unknown key (with
/// advice from suggest()), a wrong type, a value out of range or not among the choices. When it throws, some
/// fields may already be set.
void parse_options(const OptionFields& fields, const nlohmann::json& object, std::string_view where,
                   std::span<const std::string> others = {});

/// Returns all fields with their current values as an object.
nlohmann::json echo_options(const OptionFields& fields);

/// `where` + "/" + key, escaped as a JSON pointer (RFC 6901).
std::string json_pointer(std::string_view where, std::string_view key);

}  // namespace speclab
