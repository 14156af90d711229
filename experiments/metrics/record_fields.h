#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

/// Checks of the fields of a record that was read from a file. A check that fails throws Error that names the
/// place `where`, what was found and what was expected.
namespace speclab {

/// A field and the types that it may have, such as "string|null". "?" in front: the field may be missing.
struct RecordField {
  std::string_view name, types;
};

/// Throws the Error about a record that is not as results/SCHEMA.md describes it.
[[noreturn]] void fail_record(const std::string& where, std::string got, std::string expected);

void require_type(const nlohmann::json& value, std::string_view types, const std::string& where);
void require_fields(const nlohmann::json& object, std::initializer_list<RecordField> fields,
                    const std::string& where);
/// Requires the fields of each entry of the list.
void require_list(const nlohmann::json& list, std::initializer_list<RecordField> fields,
                  const std::string& where);
/// Checks the interval X_ci95 of each number X of the object. It may be missing or null. Otherwise it must be
/// an array of two entries, [lo, hi].
void require_intervals(const nlohmann::json& metrics, const std::string& where);

}  // namespace speclab
