#include "experiments/metrics/record_fields.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/options_json.h"

namespace speclab {

using nlohmann::json;

void fail_record(const std::string& where, std::string got, std::string expected) {
  throw Error(
      {.what = where,
       .got = std::move(got),
       .expected = std::move(expected),
       .advice =
           "The file is damaged or was not written by speclab; results/SCHEMA.md describes the format."});
}

void require_type(const json& value, std::string_view types, const std::string& where) {
  const std::string_view type = value.is_array() ? "array" : json_type_name(value);
  for (std::string_view rest = types; !rest.empty();) {
    const std::size_t end = std::min(rest.find('|'), rest.size());
    if (rest.substr(0, end) == type) return;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  fail_record(where, std::string(type), fmt::format("{}", types));
}

void require_fields(const json& object, std::initializer_list<RecordField> fields, const std::string& where) {
  require_type(object, "object", where);
  for (RecordField field : fields) {
    const bool optional = field.types.starts_with('?');
    if (optional) field.types.remove_prefix(1);
    const auto found = object.find(field.name);
    if (found != object.end()) {
      require_type(*found, field.types, json_pointer(where, std::string(field.name)));
    } else if (!optional) {
      fail_record(where, fmt::format("no \"{}\"", field.name), std::string(field.types));
    }
  }
}

void require_list(const json& list, std::initializer_list<RecordField> fields, const std::string& where) {
  std::size_t i = 0;
  for (const json& entry : list) require_fields(entry, fields, fmt::format("{}/{}", where, i++));
}

void require_intervals(const json& metrics, const std::string& where) {
  for (const auto& [name, value] : metrics.items()) {
    const auto interval = metrics.find(name + "_ci95");
    if (!value.is_number() || interval == metrics.end() || interval->is_null()) continue;
    if (!interval->is_array() || interval->size() != 2)
      fail_record(json_pointer(where, name + "_ci95"), interval->dump(), "[lo, hi] or null");
  }
}

}  // namespace speclab
