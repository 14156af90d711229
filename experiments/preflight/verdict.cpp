#include "experiments/preflight/verdict.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics.h"
#include "experiments/simulate/replay.h"
#include "experiments/simulate/repricing.h"
#include "experiments/simulate/trace.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kLongestChain = 32;  // of the search for the break-even acceptance

std::vector<int> lengths_up_to(int longest) {
  std::vector<int> lengths(static_cast<std::size_t>(longest));
  std::iota(lengths.begin(), lengths.end(), 1);
  return lengths;
}

bool has_draft_model(const Trace& trace) { return !trace.data->config.at("draft").is_null(); }

/// The replay of one trace with constant lengths; null if the trace has no calibrated costs.
json replay_of(const Trace& trace, const json& calibration) {
  const json all = replayed({&trace, 1}, calibration, lengths_up_to(std::max(1, longest_draft(trace))),
                            {ScheduleOptions{}});
  const json& traces = all.at("traces");
  return traces.empty() || traces[0]["best"].is_null() ? json() : traces[0];
}

json model_text(const RunData& run, const std::string& name) {
  const json& config = run.config;
  if (name.empty()) return config.value("target", json());
  const json drafts = config.value("drafts", json::object());
  const json draft = drafts.value(name, json());
  return draft.is_object() && draft.contains("model") ? draft["model"] : draft;
}

json number_or_null(const std::optional<double>& value) { return value ? json(*value) : json(); }

std::string verdict_of(double low, double high) {
  return low > 1 ? "worth it" : high < 1 ? "not worth it" : "unclear";
}

json alpha_by_category(const CaseData& data) {
  json out = json::object();
  const std::set<std::string> names(data.categories.begin(), data.categories.end());
  for (const std::string& name : names) {
    const auto part = data.of_category(name);
    part->intervals = false;
    const json metrics = compute_metrics(*part, {"alpha_teacher_forced"});
    out[name.empty() ? "all" : name] = metrics.value("alpha_teacher_forced", json());
  }
  return out;
}

std::string alpha_sentence(const json& verdict) {
  const json& even = verdict["break_even_alpha"];
  if (even.is_null())
    return fmt::format("No acceptance would give a speedup: a drafted token costs {} target forwards.",
                       number_text(verdict["c"]));
  return fmt::format("The measured alpha is {}; below an alpha of {} no draft length would gain.",
                     interval_text(verdict, "alpha"), number_text(even));
}

std::string check_sentence(const json& check) {
  const char* const meaning = check["contradicts"].get<bool>() ? "It contradicts the prediction."
                              : check["agrees"].get<bool>()    ? "It agrees with the prediction."
                                                               : "It is outside the predicted interval.";
  return fmt::format("Speedup measured on {} other prompts: {}. {}", check["prompts"].get<int>(),
                     interval_text(check, "speedup"), meaning);
}

}  // namespace

json preflight_verdict(const RunData& run, const std::vector<SimulatedDevice>& devices) {
  const std::vector<Trace> traces = read_traces(run);
  const auto own = std::ranges::find_if(traces, has_draft_model);
  if (own == traces.end()) {
    throw Error({.what = "speclab preflight",
                 .got = "no traced case with a draft model that drafted anything",
                 .expected = "a trace of the draft",
                 .advice = "configs/preflight.json is an example of a trace."});
  }
  const CaseData& data = *own->data;
  const json replay = replay_of(*own, run.calibration);
  const auto costs = calibration_of(data, run.calibration);
  const json metrics = compute_metrics(data);
  const auto c = cost_per_drafted_token(data, metrics, run.calibration);
  if (replay.is_null() || !costs || !c) {
    throw Error({.what = data.id(),
                 .got = "no calibrated costs",
                 .expected = "the times of the draft and of the target",
                 .advice = "Give the config a calibration."});
  }
  json out = {
      {"target", model_text(run, "")},
      {"draft", model_text(run, data.config.at("draft"))},
      {"case", data.id()},
      {"prompts", data.prompts.size()},
      {"positions", replay["positions"]},
      {"alpha", metrics.value("alpha_teacher_forced", json())},
      {"alpha_ci95", metrics.value("alpha_teacher_forced_ci95", json())},
      {"alpha_by_category", alpha_by_category(data)},
      {"acceptance_at", metrics.value("acceptance_at", json())},
      {"c", *c},
      {"t", json::object()},
      {"lengths", json::array()},
      {"best", replay["best"]},
      {"break_even_alpha", number_or_null(theory::break_even_alpha(*c, costs->target, kLongestChain))},
      {"others", json::array()},
      {"devices", json::array()},
      {"check", nullptr}};
  for (int n = 1; n <= longest_draft(*own) + 1 && n <= measured_rows(run.calibration); ++n)
    out["t"][std::to_string(n)] = costs->target.ratio(n);
  for (const json& row : replay["settings"]) {
    out["lengths"].push_back({{"gamma", row["gamma"]},
                              {"tau", row["tau"]},
                              {"tau_ci95", row["tau_ci95"]},
                              {"speedup", row["speedup"]},
                              {"speedup_ci95", row["speedup_ci95"]}});
  }
  const json& best = out["lengths"][replay["best"].get<std::size_t>()];
  const double speedup = best["speedup"];
  const json& ci = best["speedup_ci95"];
  const double low = (ci.is_array() ? ci[0].get<double>() : speedup) * (1 - kReplayError),
               high = (ci.is_array() ? ci[1].get<double>() : speedup) * (1 + kReplayError);
  out["interval"] = {low, high};
  out["verdict"] = verdict_of(low, high);
  for (const Trace& trace : traces) {
    if (has_draft_model(trace)) continue;
    const json other = replay_of(trace, run.calibration);
    if (other.is_null()) continue;
    const json& row = other["settings"][other["best"].get<std::size_t>()];
    out["others"].push_back({{"case", trace.data->id()},
                             {"gamma", row["gamma"]},
                             {"speedup", row["speedup"]},
                             {"speedup_ci95", row["speedup_ci95"]}});
  }
  std::sort(out["others"].begin(), out["others"].end(),
            [](const json& a, const json& b) { return a["speedup"] > b["speedup"]; });
  for (const SimulatedDevice& device : devices) {
    const json simulation = repriced(run, device, {1});
    for (json row : simulation["drafts"]) {
      row["device"] = device.name;
      out["devices"].push_back(row);
    }
  }
  return out;
}

void add_check(json& verdict, const RunData& check) {
  const auto found =
      std::ranges::find_if(check.cases, [](const auto& data) { return data->reference != nullptr; });
  if (found == check.cases.end()) return;
  const CaseData& data = **found;
  const json metrics = compute_metrics(data, {"speedup"});
  const json speedup = metrics.value("speedup", json()), ci = metrics.value("speedup_ci95", json());
  if (!speedup.is_number()) return;
  const double low = ci.is_array() ? ci[0].get<double>() : speedup.get<double>(),
               high = ci.is_array() ? ci[1].get<double>() : speedup.get<double>();
  const double predicted_low = verdict["interval"][0], predicted_high = verdict["interval"][1];
  const std::string said = verdict["verdict"], measured = verdict_of(low, high);
  verdict["check"] = {{"case", data.id()},
                      {"prompts", data.prompts.size()},
                      {"speedup", speedup},
                      {"speedup_ci95", ci},
                      {"agrees", low <= predicted_high && high >= predicted_low},
                      {"contradicts", said != measured && said != "unclear" && measured != "unclear"}};
}

std::string preflight_text(const json& verdict) {
  const json& best = verdict["lengths"][verdict["best"].get<std::size_t>()];
  const std::string said = verdict["verdict"];
  std::string text = fmt::format(
      "{}: with drafts of {} tokens, decoding should be {} times as fast (95 % interval [{}, {}]).\n{}\n",
      said == "worth it"       ? "Worth it"
      : said == "not worth it" ? "Not worth it"
                               : "Unclear",
      best["gamma"].dump(), number_text(best["speedup"]), number_text(verdict["interval"][0]),
      number_text(verdict["interval"][1]), alpha_sentence(verdict));
  if (!verdict["check"].is_null()) text += check_sentence(verdict["check"]) + "\n";
  for (const json& other : verdict["others"]) {
    if (other["speedup"].get<double>() > best["speedup"].get<double>())
      text += fmt::format("Faster without a draft model: {} with drafts of {} tokens, speedup {}.\n",
                          other["case"].get<std::string>(), other["gamma"].dump(),
                          interval_text(other, "speedup"));
  }
  Table lengths{.header = {"draft length", "t(n)", "tau", "predicted speedup"},
                .rows = {},
                .right = {true, true, true, true}};
  for (const json& row : verdict["lengths"]) {
    const std::string rows = std::to_string(row["gamma"].get<int>() + 1);
    lengths.rows.push_back({row["gamma"].dump(), number_text(verdict["t"].value(rows, json())),
                            interval_text(row, "tau"), interval_text(row, "speedup")});
  }
  text += fmt::format(
      "\nc = {} (time of a drafted token / time of a target forward). t(n): time of a target "
      "forward over the draft and one more token, in units of a forward over one token.\n{}\n",
      number_text(verdict["c"]), to_text(lengths));
  Table categories{.header = {"category", "alpha"}, .rows = {}, .right = {false, true}};
  for (const auto& [name, alpha] : verdict["alpha_by_category"].items())
    categories.rows.push_back({name, number_text(alpha)});
  text += "\n" + to_text(categories) + "\n";
  if (!verdict["devices"].empty()) {
    Table devices{.header = {"simulated device", "c", "best length", "simulated speedup", "break-even alpha"},
                  .rows = {},
                  .right = {false, true, true, true, true}};
    for (const json& row : verdict["devices"]) {
      devices.rows.push_back(
          {row["device"], number_text(row["c"]),
           fmt::format("{}{}", row["best_gamma"].dump(), row["at_limit"].get<bool>() ? " or more" : ""),
           number_text(row["speedup"]), number_text(row["break_even_alpha"])});
    }
    text += "\n" + to_text(devices) + "\n";
  }
  return text;
}

}  // namespace speclab
