#include "experiments/metrics/summary.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/decoding/drafting/schedule.h"
#include "core/decoding/registry.h"
#include "core/measure/run_result.h"
#include "core/theory/alpha_estimators.h"
#include "experiments/analysis/case_theory.h"
#include "experiments/analysis/case_waterfall.h"
#include "experiments/analysis/strategy_theory.h"
#include "experiments/metrics/bound_verdict.h"
#include "experiments/metrics/noise/machine_load.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/metrics/noise/ratio_noise.h"
#include "experiments/metrics/record_files.h"
#include "experiments/metrics/run_data.h"

namespace speclab {
namespace {

using nlohmann::json;

/// "times_note" of a case whose strategy needs a program (StrategyInfo::needs_program).
constexpr const char* kOutsideTimes =
    "another program proposed the tokens, and the times of this case contain that program and the messages "
    "to "
    "it; so they do not show how fast the method is";

json or_null(const json& object, const char* key) {
  return object.contains(key) ? object[key] : json(nullptr);
}

/// gamma, if it is the length of every draft or the upper limit of that length. Null without a draft model,
/// for a strategy with the option `fallback`, and for a schedule whose drafts may be longer than gamma.
json gamma_of(const CaseData& data) {
  const json& options = data.options();
  if (data.config["draft"].is_null() || options.contains("fallback")) return nullptr;
  const ScheduleInfo* schedule = recorded_schedule(options.value("schedule", "constant"));
  return schedule != nullptr && !schedule->exceeds_gamma ? or_null(options, "gamma") : json(nullptr);
}

json draft_sampling(const json& options) {
  if (!options.contains("draft_temperature")) return nullptr;
  const auto resolved = [&](const char* own, const char* common) {
    const json value = or_null(options, own);
    return value.is_number() && value >= 0 ? value : or_null(options, common);
  };
  return {{"temperature", resolved("draft_temperature", "temperature")},
          {"top_k", resolved("draft_top_k", "top_k")},
          {"top_p", resolved("draft_top_p", "top_p")}};
}

json alpha_by_prompt(const CaseData& data) {
  json out = json::object();
  if (judges_whole_paths(data)) return out;
  const std::vector<PromptRounds> run = data.rounds();
  for (std::size_t i = 0; i < run.size(); ++i) {
    double accepted = 0, tests = 0;
    for (const Round& round : run[i]) accepted += round.accepted, tests += round.tests();
    if (tests > 0) out[data.prompts[i]] = accepted / tests;
  }
  return out;
}

/// For each prompt: how much of its text is copied, and the case's tau and speedup on this prompt.
json by_prompt(const CaseData& data) {
  json out = json::object();
  for (std::size_t i = 0; i < data.prompts.size(); ++i) {
    const json metrics =
        compute_metrics(*data.of_prompt(data.prompts[i]), {"copied_4grams", "tau", "speedup"});
    out[data.prompts[i]] = metrics;
    out[data.prompts[i]]["category"] = data.categories[i];
  }
  return out;
}

json categories(const CaseData& data) {
  json out = json::object();
  const std::set<std::string> names(data.categories.begin(), data.categories.end());
  if (names.size() < 2) return out;
  for (const std::string& name : names) {
    const auto part = data.of_category(name);
    out[name] = {{"prompts", part->prompts.size()}, {"metrics", compute_metrics(*part)}};
  }
  return out;
}

/// The published numbers of this case in the config, each beside the number measured or predicted here.
json published(const json& rows, const std::string& id, const json& whole, const json& predictions,
               const json& of_categories) {
  json out = json::array();
  for (const json& row : rows) {
    if (row["case"] != id) continue;
    const std::string category = row.value("category", "");
    const json none = json::object();
    const json& metrics = category.empty()                   ? whole
                          : of_categories.contains(category) ? of_categories[category]["metrics"]
                                                             : none;
    const json of_metrics = row.value("metrics", json::object());
    const json of_predictions = row.value("predictions", json::object());
    json values = json::array();
    for (const auto& [name, value] : of_metrics.items())
      values.push_back({{"name", name}, {"published", value}, {"here", or_null(metrics, name.c_str())}});
    for (const auto& [name, value] : of_predictions.items()) {
      const json here = predictions.contains(name) ? predictions[name]["value"] : json(nullptr);
      values.push_back({{"name", name}, {"published", value}, {"here", here}});
    }
    out.push_back({{"source", row["source"]}, {"values", values}});
    for (const char* key : {"category", "reason"}) {
      if (row.contains(key)) out.back()[key] = row[key];
    }
  }
  return out;
}

json case_summary(const CaseData& data, const std::string& file, std::size_t repeats,
                  const json& published_rows, const json& theory) {
  const json& config = data.config;
  const json& options = data.options();
  std::size_t lines = 0, seeds = 0;
  for (const auto& prompt : data.lines) {
    seeds = std::max(seeds, prompt->size());
    for (const auto& seed : *prompt) lines += seed.size();
  }
  const json metrics = compute_metrics(data);
  json out = {{"id", data.id()},
              {"file", file},
              {"strategy", config["strategy"]},
              {"draft", config["draft"]},
              {"gamma", gamma_of(data)},
              {"rule", config["rule"]},
              {"coins", or_null(options, "coins")},
              {"schedule", or_null(options, "schedule")},
              {"verify", config["verify"]},
              {"loss_class", config["loss_class"]},
              {"lossy", config["loss_class"] == "L3"},
              {"target", data.environment.value(json::json_pointer("/models/target/name"), "")},
              {"sampling",
               {{"temperature", or_null(options, "temperature")},
                {"top_k", or_null(options, "top_k")},
                {"top_p", or_null(options, "top_p")}}},
              {"draft_sampling", draft_sampling(options)},
              {"options", options},
              {"axes", config["axes"]},
              {"reference", config["reference"]},
              {"prompts", data.prompts.size()},
              {"seeds", seeds},
              {"repeats", repeats},
              {"lines", lines},
              {"errors", data.errors.size()},
              {"metrics", metrics},
              {"above_bound", above_bound(data)},
              {"predictions", case_predictions(data, metrics)},
              {"waterfall", json::array()},
              {"categories", categories(data)},
              {"alpha_by_prompt", alpha_by_prompt(data)},
              {"by_prompt", by_prompt(data)}};
  const StrategyInfo* strategy = recorded_strategy(config["strategy"].get<std::string>());
  if (strategy != nullptr && strategy->needs_program) out["times_note"] = kOutsideTimes;
  if (data.branches) out["best_chain"] = data.best_chain ? json(data.best_chain->id()) : json(nullptr);
  out["predictions"].update(theory_predictions(theory, data.id(), or_null(metrics, "tau")));
  out["published"] = published(published_rows, data.id(), metrics, out["predictions"], out["categories"]);
  if (const auto explanation = explain_case(data, metrics, theory)) {
    out["waterfall"] = waterfall_json(explanation->waterfall);
    add_what_ifs(out["predictions"], *explanation, metrics);
  }
  return out;
}

}  // namespace

json summarise_run(const std::filesystem::path& folder) try {
  const RunData run = load_run(folder);
  json errors = json::array(), cases = json::array();
  std::vector<stats::Times> times;
  const json theory = theory_sections(run.cases, run.calibration);
  for (const auto& data : run.cases) {
    for (const auto& [prompt, message] : data->errors)
      errors.push_back({{"case", data->id()}, {"prompt", prompt}, {"message", message}});
    for (const auto& [prompt, message] : data->failed_estimates)
      errors.push_back({{"case", data->id()}, {"prompt", prompt}, {"message", message}});
    if (data->unequal()) {
      errors.push_back(
          {{"case", data->id()},
           {"prompt", nullptr},
           {"message", "the output of the case differs from the reference, so the case has no speed"}});
    }
    if (!data->lines.empty()) times.push_back(decode_times(*data));
    const std::string file = "cases/" + find_case_file(folder, data->id()).filename().string();
    cases.push_back(case_summary(*data, file, run.config.at("repeats"),
                                 run.config.value("published", json::array()), theory));
  }
  const auto noise = stats::noise_floor(times), of_ratios = ratio_noise(run.cases);
  json summary = {{"schema_version", kSchemaVersion},
                  {"name", run.config["name"]},
                  {"description", run.config["description"]},
                  {"complete", run.complete},
                  {"errors", errors},
                  {"noise_floor", noise ? json(*noise) : json(nullptr)},
                  {"ratio_noise", of_ratios ? json(*of_ratios) : json(nullptr)},
                  {"machine", judge_machine(cases, run.environment, drift_of(run))},
                  {"calibration", run.calibration},
                  {"cases", cases}};
  summary.update(theory);
  return summary;
} catch (const json::exception& error) {  // all JSON here comes from the folder
  throw Error({.what = folder.string(),
               .got = error.what(),
               .expected = "the record of a run",
               .advice = "A file in it is damaged; see results/SCHEMA.md."});
}

std::string summary_text(const json& summary) {
  const auto line_of = [](const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  std::string text = "{\n";
  const char* before = "";
  for (const auto& [key, value] : summary.items()) {
    text += std::exchange(before, ",\n") + json(key).dump() + ':';
    if (key != "cases" || value.empty()) {
      text += line_of(value);
      continue;
    }
    const char* open = "[\n";
    for (const json& one : value) text += std::exchange(open, ",\n") + line_of(one);
    text += "\n]";
  }
  return text + "\n}\n";
}

RunSummary read_summary(const std::filesystem::path& folder) {
  const bool stored = !path_exists(folder / "cases") && path_exists(folder / "summary.json");
  return {stored ? read_run_summary(folder) : summarise_run(folder), stored};
}

}  // namespace speclab
