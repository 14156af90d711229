#include "experiments/metrics/record_files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/options_json.h"
#include "core/measure/run_result.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A field and the types that it may have, "string|null"; "?" in front: it may be missing.
struct Field {
  std::string_view name, types;
};

[[noreturn]] void fail(const std::string& where, std::string got, std::string expected) {
  throw Error({.what = where,
               .got = std::move(got),
               .expected = std::move(expected),
               .advice = "The file is damaged or of another program; see results/SCHEMA.md."});
}

void require_type(const json& value, std::string_view types, const std::string& where) {
  const std::string_view type = value.is_array() ? "array" : json_type_name(value);
  for (std::string_view rest = types; !rest.empty();) {
    const std::size_t end = std::min(rest.find('|'), rest.size());
    if (rest.substr(0, end) == type) return;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  fail(where, std::string(type), fmt::format("{}", types));
}

void require_fields(const json& object, std::initializer_list<Field> fields, const std::string& where) {
  require_type(object, "object", where);
  for (Field field : fields) {
    const bool optional = field.types.starts_with('?');
    if (optional) field.types.remove_prefix(1);
    const auto found = object.find(field.name);
    if (found != object.end()) {
      require_type(*found, field.types, json_pointer(where, std::string(field.name)));
    } else if (!optional) {
      fail(where, fmt::format("no \"{}\"", field.name), std::string(field.types));
    }
  }
}

void require_list(const json& list, std::initializer_list<Field> fields, const std::string& where) {
  std::size_t i = 0;
  for (const json& entry : list) require_fields(entry, fields, fmt::format("{}/{}", where, i++));
}

/// Throws for an id that stands twice.
void require_distinct(const json& list, const std::string& where) {
  std::set<std::string> ids;
  for (const json& entry : list) {
    const std::string id = entry["id"].get<std::string>();
    if (!ids.insert(id).second) fail(where, fmt::format("the id \"{}\" twice", id), "distinct ids");
  }
}

/// The interval of each number among an object's values is [lo, hi] or null.
void require_intervals(const json& metrics, const std::string& where) {
  for (const auto& [name, value] : metrics.items()) {
    const auto interval = metrics.find(name + "_ci95");
    if (!value.is_number() || interval == metrics.end() || interval->is_null()) continue;
    if (!interval->is_array() || interval->size() != 2)
      fail(json_pointer(where, name + "_ci95"), interval->dump(), "[lo, hi] or null");
  }
}

void require_lookahead(const json& fits, const std::string& where) {
  require_list(fits,
               {{"alpha", "number"},
                {"alpha_ci95", "array|null"},
                {"f", "number"},
                {"f_ci95", "array|null"},
                {"share", "number|null"},
                {"share_ci95", "?array|null"},
                {"held_out", "?array"},
                {"cells", "array"},
                {"machines", "array"}},
               where);
  const std::initializer_list<Field> setting = {
      {"W", "number"}, {"N", "number"}, {"G", "number"}, {"tau", "number"}, {"speedup", "number|null"}};
  for (const json& fit : fits) {
    require_intervals(fit, where);
    const std::string at = where + "/machines";
    require_list(fit["machines"],
                 {{"machine", "string"},
                  {"best", "object"},
                  {"degenerate", "boolean"},
                  {"published", "array"},
                  {"devices", "array"}},
                 at);
    for (const json& machine : fit["machines"]) {
      require_fields(machine["best"], setting, at + "/best");
      require_list(machine["published"], setting, at + "/published");
      require_list(machine["devices"], {{"speedup", "number|null"}}, at + "/devices");
    }
  }
}

void require_devices(const json& list, const std::string& where) {
  require_list(list,
               {{"case", "string"},
                {"devices", "number"},
                {"equal", "boolean"},
                {"rows", "array"},
                {"most_rows", "array|null"},
                {"slowest_ms", "number|null"},
                {"other_ms", "number|null"},
                {"exchange_ms", "number|null"},
                {"speedup", "number|null"},
                {"predicted_speedup", "number|null"},
                {"undivided_speedup", "number|null"}},
               where);
}

/// Options that metrics and predictions read.
void require_options(const json& entry, const std::string& where) {
  require_fields(entry["options"],
                 {{"schedule", "?string"},
                  {"coins", "?string"},
                  {"gamma", "?number"},
                  {"temperature", "?number"},
                  {"draft_temperature", "?number"}},
                 where);
  if (entry["strategy"] == "lookahead")
    require_fields(entry["options"], {{"W", "number"}, {"N", "number"}, {"G", "number"}}, where);
}

/// Reads the file; its version, when it has one, is ours.
json read_object(const fs::path& path, std::string* where) {
  json value = read_json_file(path);
  *where = path.string() + ": ";
  if (!value.is_object()) fail(path.string(), std::string(json_type_name(value)), "an object");
  if (const auto version = value.find("schema_version");
      version != value.end() && *version != kSchemaVersion) {
    throw Error({.what = *where + "/schema_version",
                 .got = version->dump(),
                 .expected = std::to_string(kSchemaVersion),
                 .advice = "Read it with the version of speclab that wrote it."});
  }
  return value;
}

}  // namespace

json read_run_config(const fs::path& folder) {
  std::string where;
  json config = read_object(folder / "config.json", &where);
  require_fields(config,
                 {{"name", "string"},
                  {"description", "string"},
                  {"repeats", "number"},
                  {"seeds", "array"},
                  {"prompts", "array"},
                  {"cases", "array"},
                  {"published", "?array"}},
                 where);
  for (const json& seed : config["seeds"]) require_type(seed, "number", where + "/seeds");
  require_list(config["prompts"], {{"id", "string"}, {"category", "?string"}}, where + "/prompts");
  require_list(config["cases"],
               {{"id", "string"},
                {"strategy", "string"},
                {"draft", "string|null"},
                {"reference", "string|null"},
                {"verify", "string"},
                {"rule", "string"},
                {"loss_class", "string"},
                {"axes", "object"},
                {"options", "object"},
                {"devices", "?number"}},
               where + "/cases");
  for (const json& entry : config["cases"]) {
    require_options(entry, fmt::format("{}/cases: {}: options", where, entry["id"].get<std::string>()));
  }
  require_distinct(config["prompts"], where + "/prompts");
  require_distinct(config["cases"], where + "/cases");
  require_list(config.value("published", json::array()),
               {{"case", "string"},
                {"source", "string"},
                {"category", "?string"},
                {"reason", "?string"},
                {"metrics", "?object"},
                {"predictions", "?object"}},
               where + "/published");
  return config;
}

json read_run_environment(const fs::path& folder) {
  std::string where;
  json environment = read_object(folder / "environment.json", &where);
  require_fields(environment,
                 {{"cpu", "?object"},
                  {"models", "?object"},
                  {"threads", "?number"},
                  {"read_bandwidth_bytes_per_second", "?number"},
                  {"peak_flops", "?number"}},
                 where);
  const json models = environment.value("models", json::object());
  for (const auto& [role, model] : models.items()) {
    require_fields(model, {{"name", "?string"}, {"sha256", "?string"}},
                   json_pointer(where + "/models", role));
  }
  return environment;
}

json read_run_summary(const fs::path& folder) {
  std::string where;
  json summary = read_object(folder / "summary.json", &where);
  require_fields(summary,
                 {{"name", "string"},
                  {"description", "string"},
                  {"complete", "boolean"},
                  {"errors", "array"},
                  {"noise_floor", "number|null"},
                  {"cases", "array"},
                  {"lookahead", "?array"},
                  {"lookahead_devices", "?array"}},
                 where);
  summary.emplace("lookahead", json::array());
  summary.emplace("lookahead_devices", json::array());
  require_list(summary["errors"], {{"case", "string"}, {"message", "string"}}, where + "/errors");
  require_lookahead(summary["lookahead"], where + "/lookahead");
  require_devices(summary["lookahead_devices"], where + "/lookahead_devices");
  const std::string cases = where + "/cases";
  require_list(summary["cases"],
               {{"id", "string"},
                {"strategy", "string"},
                {"draft", "string|null"},
                {"gamma", "number|null"},
                {"rule", "string"},
                {"loss_class", "string"},
                {"lossy", "boolean"},
                {"reference", "string|null"},
                {"errors", "number"},
                {"sampling", "object"},
                {"metrics", "object"},
                {"by_prompt", "?object"},
                {"published", "?array"}},
               cases);
  std::size_t i = 0;
  for (json& entry : summary["cases"]) {
    const std::string at = fmt::format("{}/{}", cases, i++);
    require_intervals(entry["metrics"], at + "/metrics");
    for (const char* key : {"temperature", "top_k", "top_p"}) entry["sampling"].emplace(key, nullptr);
    for (auto& [prompt, values] : entry.emplace("by_prompt", json::object()).first.value().items()) {
      require_fields(values,
                     {{"category", "string"},
                      {"copied_4grams", "number|null"},
                      {"tau", "number|null"},
                      {"speedup", "number|null"}},
                     json_pointer(at + "/by_prompt", prompt));
    }
    for (json& row : entry.emplace("published", json::array()).first.value()) {
      require_fields(row,
                     {{"source", "string"},
                      {"values", "array"},
                      {"category", "?string|null"},
                      {"reason", "?string|null"}},
                     at + "/published");
      for (const char* key : {"category", "reason"}) {  // older summaries have null for none
        if (row.contains(key) && row[key].is_null()) row.erase(key);
      }
      require_list(row["values"],
                   {{"name", "string"}, {"published", "number"}, {"here", "number|boolean|null"}},
                   at + "/published");
    }
  }
  return summary;
}

}  // namespace speclab
