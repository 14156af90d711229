#include "experiments/simulate/replay/replay_check.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/options_json.h"
#include "core/decoding/registry.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/simulate/replay.h"
#include "experiments/simulate/replay/tree_replay.h"

namespace speclab {
namespace {

using nlohmann::json;

/// What a replay predicts for a set of texts.
struct PredictedSteps {
  double steps = 0;
  double tau = 0;
  std::optional<double> step_ns;  // mean time of a step; absent without calibrated costs
};

/// The replay of a measured case: predicts the steps of these texts of a trace.
struct CheckedReplay {
  std::map<std::string, std::vector<std::size_t>> texts;  // of the trace, by prompt
  std::function<PredictedSteps(std::span<const std::size_t> texts)> predict;
};

/// The options of a case without `others` and without those that a replay may choose.
json fixed_options(const CaseData& data, std::initializer_list<const char*> others) {
  json options = data.options();
  for (const char* name : {"gamma", "length", "emit_at_most", "budget"}) options.erase(name);
  for (const char* name : others) options.erase(name);
  ScheduleOptions schedule;
  for (const OptionInfo& info : describe_options(option_fields(schedule))) options.erase(info.name);
  return options;
}

/// Whether two cases have the same strategy, draft, rule and options. An option that one of the records
/// lacks, because it is older, is not compared.
bool same_drafter(const CaseData& a, const CaseData& b, std::initializer_list<const char*> but_for) {
  for (const char* name : {"strategy", "draft", "rule"}) {
    if (a.config[name] != b.config[name]) return false;
  }
  const json first = fixed_options(a, but_for), second = fixed_options(b, but_for);
  for (const auto& [name, value] : first.items()) {
    if (second.contains(name) && second[name] != value) return false;
  }
  return true;
}

/// The option that limits the length of a case's drafts. A case without a draft model copies up to `length`
/// tokens. Its gamma is that of an unused fallback.
const char* length_option(const CaseData& data) {
  return data.config["draft"].is_null() && data.options().contains("length") ? "length" : "gamma";
}

ReplaySetting setting_of(const CaseData& data) {
  const json& options = data.options();
  ReplaySetting setting;
  setting.gamma = options.at(length_option(data));
  json schedule = json::object();
  const json known = echo_options(option_fields(setting.schedule));
  for (const auto& [name, value] : known.items()) {
    if (options.contains(name)) schedule[name] = options[name];
  }
  parse_options(option_fields(setting.schedule), schedule, data.id());
  return setting;
}

/// The texts by prompt, if the prompts are those of the case.
template <class Text>
std::optional<std::map<std::string, std::vector<std::size_t>>> texts_of_prompts(
    const std::vector<Text>& texts, const CaseData& data) {
  std::map<std::string, std::vector<std::size_t>> out;
  for (std::size_t i = 0; i < texts.size(); ++i) out[texts[i].prompt].push_back(i);
  const std::set<std::string> measured(data.prompts.begin(), data.prompts.end());
  const bool same = measured.size() == out.size() &&
                    std::ranges::all_of(measured, [&](const auto& prompt) { return out.contains(prompt); });
  if (!same) return std::nullopt;
  return out;
}

/// The replay of a case of chains; absent if no trace fits.
std::optional<CheckedReplay> chain_replay(std::span<const Trace> traces, const CaseData& data,
                                          const std::optional<theory::Calibration>& costs) {
  if (!data.options().contains(length_option(data))) return std::nullopt;
  const ReplaySetting setting = setting_of(data);
  for (const Trace& trace : traces) {
    if (!same_drafter(*trace.data, data, {})) continue;
    if (!why_left_out(trace, setting.schedule, false).empty()) continue;
    if (Schedule(setting.schedule, setting.gamma).largest() > longest_draft(trace)) continue;
    auto texts = texts_of_prompts(trace.texts, data);
    if (!texts) return std::nullopt;
    return CheckedReplay{*std::move(texts), [&trace, setting, costs](std::span<const std::size_t> chosen) {
                           const Replayed counts = replay(trace, chosen, setting);
                           PredictedSteps out{counts.steps, counts.steps > 0 ? counts.tau() : 0,
                                              std::nullopt};
                           if (costs && counts.steps > 0) out.step_ns = replayed_step(counts, *costs).total();
                           return out;
                         }};
  }
  return std::nullopt;
}

/// The trees of a case, from its options; absent if it drafts no trees of a known shape.
std::optional<NamedTrees> trees_of_case(const CaseData& data) {
  const json& options = data.options();
  if (!drafts_best_tokens(data) || options.value("budget", "fixed") != "fixed" ||
      options.value("sequences", 0) > 0)
    return std::nullopt;
  const std::string file = options.value("tree", "");
  if (!file.empty() && !path_exists(file)) return std::nullopt;
  if (!file.empty()) return named_trees(file);
  const std::vector<int> widths = options.value("widths", std::vector<int>());
  if (widths.empty()) return std::nullopt;
  return NamedTrees{data.id(), TreeShape::of_widths(widths, data.id())};
}

/// The replay of a case of trees; absent if no trace fits.
std::optional<CheckedReplay> tree_replay(std::span<const RankTrace> traces, const CaseData& data,
                                         const std::optional<theory::Calibration>& costs) {
  const StrategyInfo* info = recorded_strategy(data.config.value("strategy", ""));
  if (info == nullptr || !info->drafts_any_shape) return std::nullopt;
  auto trees = trees_of_case(data);
  if (!trees) return std::nullopt;
  const auto shared = std::make_shared<const NamedTrees>(*std::move(trees));
  for (const RankTrace& trace : traces) {
    // Ranks do not depend on how many children there are, nor on how the best tokens were asked for.
    if (!same_drafter(*trace.data, data,
                      {"widths", "sequences", "tree", "root_confidence", "children", "used_up"}))
      continue;
    auto texts = texts_of_prompts(trace.texts, data);
    if (!texts) return std::nullopt;
    return CheckedReplay{
        *std::move(texts), [&trace, shared, costs](std::span<const std::size_t> chosen) {
          const TreeReplayed counts = replay_trees(trace, chosen, shared->trees);
          PredictedSteps out{counts.steps, counts.steps > 0 ? counts.tau() : 0, std::nullopt};
          if (costs && counts.steps > 0)
            out.step_ns = theory::calibrated_rows_step(rows_of_trees(counts, *costs)).total();
          return out;
        }};
  }
  return std::nullopt;
}

/// The decoding time of each prompt: all seeds and turns together, median over repeats.
std::map<std::string, double> measured_times(const CaseData& data) {
  std::map<std::string, double> out;
  for (std::size_t i = 0; i < data.prompts.size(); ++i) {
    std::vector<double> repeats;
    for (const std::vector<LineRecord>& seed : *data.lines[i]) {
      if (repeats.empty() || seed.size() < repeats.size()) repeats.resize(seed.size());
      for (std::size_t repeat = 0; repeat < repeats.size(); ++repeat)
        repeats[repeat] += static_cast<double>(seed[repeat].decode_ns());
    }
    if (!repeats.empty()) out[data.prompts[i]] = stats::median(repeats);
  }
  return out;
}

/// Errors and where they come from.
struct ErrorList {
  struct Entry {
    double size;
    std::string case_id;
    json prompt;
  };
  std::vector<Entry> entries;
  void add(double error, const std::string& case_id, json prompt) {
    entries.push_back({std::abs(error), case_id, std::move(prompt)});
  }
  json summary() const {
    if (entries.empty()) return nullptr;
    std::vector<double> sizes;
    for (const Entry& entry : entries) sizes.push_back(entry.size);
    const Entry& worst = *std::ranges::max_element(entries, {}, &Entry::size);
    return {{"count", entries.size()},
            {"median", stats::median(sizes)},
            {"largest", worst.size},
            {"case", worst.case_id},
            {"prompt", worst.prompt}};
  }
};

/// Adds the errors of the times of a case's prompts to its row.
void add_prompts(const CaseData& data, const CheckedReplay& replay, json& row, ErrorList& all) {
  if (data.unequal()) return;
  const std::map<std::string, double> measured = measured_times(data);
  ErrorList own;
  for (const auto& [prompt, texts] : replay.texts) {
    const PredictedSteps predicted = replay.predict(texts);
    const auto found = measured.find(prompt);
    if (!predicted.step_ns || found == measured.end() || found->second <= 0) continue;
    const double ns = predicted.steps * *predicted.step_ns, error = ns / found->second - 1;
    row["prompts"].push_back(
        {{"prompt", prompt}, {"ms", 1e-6 * found->second}, {"replayed_ms", 1e-6 * ns}, {"error", error}});
    own.add(error, data.id(), prompt);
    all.add(error, data.id(), prompt);
  }
  row["prompt_errors"] = own.summary();
}

std::string percent_text(const json& error, bool with_sign) {
  if (!error.is_number()) return "—";
  const double percent = 100 * error.get<double>();
  return with_sign ? fmt::format("{:+.1f} %", percent) : fmt::format("{:.1f} %", percent);
}

std::string errors_text(const char* of, const json& errors) {
  if (errors.is_null()) return "";
  const std::string prompt =
      errors["prompt"].is_string() ? fmt::format(", prompt {}", errors["prompt"].get<std::string>()) : "";
  return fmt::format("{}: median error {}, largest {} ({}{}), of {}\n", of,
                     percent_text(errors["median"], false), percent_text(errors["largest"], false),
                     errors["case"].get<std::string>(), prompt, errors["count"].get<std::size_t>());
}

}  // namespace

json replay_check(std::span<const Trace> traces, std::span<const RankTrace> rank_traces,
                  const json& calibration, const RunData& measured) {
  ErrorList speedups, prompts;
  json out = {{"cases", json::array()}};
  for (const auto& data : measured.cases) {
    if (!data->reference || is_trace(*data)) continue;
    const auto costs = calibration_of(*data, calibration);
    auto replay = chain_replay(traces, *data, costs);
    if (!replay) replay = tree_replay(rank_traces, *data, costs);
    if (!replay) continue;
    std::vector<std::size_t> all;
    for (const auto& [prompt, texts] : replay->texts) all.insert(all.end(), texts.begin(), texts.end());
    std::sort(all.begin(), all.end());
    const PredictedSteps predicted = replay->predict(all);
    if (predicted.steps == 0) continue;
    const json metrics = compute_metrics(*data);
    json row = {{"case", data->id()},
                {"tau", metrics.value("tau", json())},
                {"replayed_tau", predicted.tau},
                {"speedup", metrics.value("speedup", json())},
                {"replayed_speedup", nullptr},
                {"error", nullptr},
                {"prompts", json::array()},
                {"prompt_errors", nullptr}};
    if (predicted.step_ns) {
      const double speedup = predicted.tau * costs->t_ar / *predicted.step_ns;
      row["replayed_speedup"] = speedup;
      if (row["speedup"].is_number()) {
        const double error = speedup / row["speedup"].get<double>() - 1;
        row["error"] = error;
        speedups.add(error, data->id(), nullptr);
      }
      add_prompts(*data, *replay, row, prompts);
    }
    out["cases"].push_back(std::move(row));
  }
  out["speedup_errors"] = speedups.summary();
  out["prompt_errors"] = prompts.summary();
  return out;
}

std::string replay_check_text(const json& comparison) {
  Table table{.header = {"case", "tau", "replayed tau", "speedup", "replayed speedup", "error",
                         "prompts: median error", "largest"},
              .rows = {},
              .right = {false, true, true, true, true, true, true, true}};
  for (const json& row : comparison["cases"]) {
    const json& errors = row["prompt_errors"];
    const auto of_prompts = [&](const char* name) {
      return percent_text(errors.is_object() ? errors[name] : json(), false);
    };
    table.rows.push_back({row["case"], number_text(row["tau"], 5), number_text(row["replayed_tau"], 5),
                          number_text(row["speedup"]), number_text(row["replayed_speedup"]),
                          percent_text(row["error"], true), of_prompts("median"), of_prompts("largest")});
  }
  return to_text(table) + errors_text("speedup of a case", comparison["speedup_errors"]) +
         errors_text("time of a prompt", comparison["prompt_errors"]);
}

}  // namespace speclab
