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
#include "experiments/analysis/strategy_theory.h"
#include "experiments/metrics/record_fields.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Throws Error when two entries have the same id.
void require_distinct(const json& list, const std::string& where) {
  std::set<std::string> ids;
  for (const json& entry : list) {
    const std::string id = entry["id"].get<std::string>();
    if (!ids.insert(id).second) fail_record(where, fmt::format("the id \"{}\" twice", id), "distinct ids");
  }
}

/// Checks the types of the options that metrics read, and requires the options that theories read.
void require_recorded_options(const json& entry, const std::string& where) {
  require_fields(entry["options"],
                 {{"schedule", "?string"},
                  {"coins", "?string"},
                  {"gamma", "?number"},
                  {"temperature", "?number"},
                  {"draft_temperature", "?number"}},
                 where);
  require_theory_options(entry, where);
}

/// If a summary has a list "texts", "equation" and "assumptions" of its predictions are indices into the
/// list. Replaces each index by its text and removes the list. Throws Error for anything but a valid index.
void put_texts_back(json& summary, const std::string& where) {
  const auto found = summary.find("texts");
  if (found == summary.end()) return;
  const json texts = *found;
  summary.erase(found);
  const auto put_back = [&](json& prediction) {
    for (const char* name : {"equation", "assumptions"}) {
      const auto place = prediction.find(name);
      if (place == prediction.end()) continue;
      if (!place->is_number_unsigned() || place->get<std::uint64_t>() >= texts.size())
        fail_record(where + "/cases", fmt::format("\"{}\": {}", name, place->dump()),
                    fmt::format("a place in the list \"texts\" of {} texts, from 0 to {}", texts.size(),
                                static_cast<std::int64_t>(texts.size()) - 1));
      *place = texts[place->get<std::size_t>()];
    }
  };
  for (json& entry : summary.at("cases")) {
    const auto predictions = entry.find("predictions");
    if (predictions == entry.end()) continue;
    for (json& prediction : *predictions) {
      if (prediction.is_object()) put_back(prediction);
    }
  }
}

/// Reads a JSON object. Throws Error when it names another schema version.
json read_object(const fs::path& path, std::string* where) {
  json value = read_json_file(path);
  *where = path.string() + ": ";
  if (!value.is_object()) fail_record(path.string(), std::string(json_type_name(value)), "an object");
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
                {"drafts", "?array"},
                {"reference", "string|null"},
                {"verify", "string"},
                {"rule", "string"},
                {"loss_class", "string"},
                {"axes", "object"},
                {"options", "object"},
                {"devices", "?number"}},
               where + "/cases");
  for (const json& entry : config["cases"]) {
    for (const json& draft : entry.value("drafts", json::array()))
      require_type(draft, "string", where + "/cases/drafts");
    require_recorded_options(entry,
                             fmt::format("{}/cases: {}: options", where, entry["id"].get<std::string>()));
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
                  {"peak_flops", "?number"},
                  {"step_costs", "?object"}},
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
                  {"texts", "?array"}},
                 where);
  put_texts_back(summary, where);
  require_list(summary["errors"], {{"case", "string"}, {"message", "string"}}, where + "/errors");
  require_theory_sections(summary, where);
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
      for (const char* key : {"category", "reason"}) {  // older summaries have null instead of no field
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
