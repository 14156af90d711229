#include "experiments/config/published.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/nearest.h"
#include "core/base/options_json.h"
#include "experiments/config/config_value.h"
#include "experiments/metrics/metrics.h"

namespace speclab {

using nlohmann::json;

void read_published(Experiment& experiment, const json& list, const std::string& where) {
  if (!list.is_array()) wrong_value(where, list, "a list");
  std::vector<std::string> ids, known, categories;
  for (const PromptSpec& prompt : experiment.prompts) categories.push_back(prompt.category);
  for (const CaseSpec& spec : experiment.cases) ids.push_back(spec.id);
  for (const Metric& metric : metrics()) known.emplace_back(metric.name);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string at = fmt::format("{}/{}", where, i);
    const json& row = list[i];
    const auto is_text = [&](const char* key) { return row.contains(key) && row[key].is_string(); };
    if (!row.is_object() || !is_text("case") || !is_text("source"))
      wrong_value(at, row, "{\"case\": ID, \"source\": TEXT, \"metrics\": {...}, \"predictions\": {...}}");
    const std::string id = row["case"].get<std::string>();
    if (std::ranges::find(ids, id) == ids.end())
      throw Error({.what = at + "/case",
                   .got = "\"" + id + "\"",
                   .expected = "the id of a case",
                   .advice = suggest(id, ids)});
    for (const auto& [key, values] : row.items()) {
      if (key == "case" || key == "source") continue;
      if (key == "reason" || key == "category") {
        if (!values.is_string()) wrong_value(at + "/" + key, values, "a text");
        if (key == "category" && std::ranges::find(categories, values.get<std::string>()) == categories.end())
          throw Error({.what = at + "/category",
                       .got = values.dump(),
                       .expected = "a category of the prompts",
                       .advice = suggest(values.get<std::string>(), categories)});
        continue;
      }
      if (key != "metrics" && key != "predictions")
        throw Error({.what = json_pointer(at, key),
                     .got = "an unknown key",
                     .expected = "case, category, source, reason, metrics, predictions",
                     .advice = ""});
      if (!values.is_object()) wrong_value(at + "/" + key, values, "numbers by name");
      for (const auto& [name, value] : values.items()) {
        const std::string pointer = json_pointer(at + "/" + key, name);
        if (!value.is_number()) wrong_value(pointer, value, "a number");
        if (key == "metrics" && std::ranges::find(known, name) == known.end())
          throw Error(
              {.what = pointer, .got = "an unknown metric", .expected = "", .advice = suggest(name, known)});
      }
    }
  }
  experiment.published = list;
}

}  // namespace speclab
