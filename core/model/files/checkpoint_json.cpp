#include "core/model/files/checkpoint_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/mapped_file.h"

namespace speclab {
namespace {

using Json = nlohmann::json;

std::string value_text(const Json& value) {
  if (value.is_string() || value.is_number() || value.is_boolean()) return value.dump();
  return fmt::format("a JSON {}", json_type_name(value));
}

[[noreturn]] void fail(std::string what, std::string got, std::string expected, std::string advice = "") {
  throw Error({std::move(what), std::move(got), std::move(expected), std::move(advice)});
}

}  // namespace

Json read_checkpoint_json(const std::filesystem::path& path, std::size_t most_bytes) {
  const MappedFile file = MappedFile::open(path);
  if (const std::size_t size = file.text().size(); size > most_bytes) {
    fail(path.string(), fmt::format("{} bytes", size), fmt::format("at most {}", most_bytes),
         "No model's file is so large; fetch it again.");
  }
  return parse_json(file.text(), path.string());
}

ConfigValues::ConfigValues(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
  if (!json.is_object()) fail(where_, fmt::format("a JSON {}", json_type_name(json)), "a JSON object");
}

bool ConfigValues::has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

bool ConfigValues::states(const char* key) const { return json_.contains(key); }

const Json& ConfigValues::at(const char* key) const {
  if (!has(key)) fail(name(key), "nothing", "a value", "The file is incomplete; fetch it again.");
  return json_[key];
}

int ConfigValues::integer(const char* key, std::int64_t least, std::int64_t most) const {
  const Json& value = at(key);
  const std::string range = fmt::format("a whole number from {} to {}", least, most);
  if (!value.is_number_integer()) fail(name(key), value_text(value), range);
  const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX;
  if (huge || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
    fail(name(key), value.dump(), range);
  }
  return static_cast<int>(value.get<std::int64_t>());
}

int ConfigValues::integer_or(const char* key, int absent, std::int64_t least, std::int64_t most) const {
  return has(key) ? integer(key, least, most) : absent;
}

float ConfigValues::positive(const char* key) const {
  const Json& value = at(key);
  if (!value.is_number()) fail(name(key), value_text(value), "a positive number");
  const float number = value.get<float>();
  if (!(number > 0) || !std::isfinite(number)) fail(name(key), value.dump(), "a positive number");
  return number;
}

bool ConfigValues::flag_or(const char* key, bool absent) const {
  if (!has(key)) return absent;
  if (!json_[key].is_boolean()) fail(name(key), value_text(json_[key]), "true or false");
  return json_[key].get<bool>();
}

std::string ConfigValues::text_or(const char* key, std::string absent) const {
  if (!has(key)) return absent;
  if (!json_[key].is_string()) fail(name(key), value_text(json_[key]), "a string");
  return json_[key].get<std::string>();
}

void ConfigValues::refuse(const char* key, std::string expected, std::string advice) const {
  fail(name(key), has(key) ? value_text(json_[key]) : "nothing", std::move(expected), std::move(advice));
}

}  // namespace speclab
