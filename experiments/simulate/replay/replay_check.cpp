#include "experiments/simulate/replay/replay_check.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/measure/stats.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/metrics.h"
#include "experiments/simulate/replay/check_prices.h"

namespace speclab {
namespace {

using nlohmann::json;

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

/// The errors of a check, all of them and those on what no calibration and no fit has seen.
struct CheckErrors {
  ErrorList speedups, uncalibrated_speedups, held_out_speedups, prompts, held_out_prompts;
};

/// Adds the errors of the times of a case's prompts to its row.
void add_prompts(const CaseData& data, const CheckedReplay& replay, const std::set<std::string>& seen,
                 json& row, CheckErrors& all) {
  if (data.unequal() || replay.certainty != Certainty::exact) return;
  const std::map<std::string, double> measured = measured_times(data);
  ErrorList own;
  for (const auto& [prompt, texts] : replay.texts) {
    const PredictedSteps predicted = replay.predict(texts);
    const auto found = measured.find(prompt);
    if (!predicted.step_ns || found == measured.end() || found->second <= 0) continue;
    const double ns = predicted.steps * *predicted.step_ns, error = ns / found->second - 1;
    const bool held_out = !seen.contains(prompt);
    row["prompts"].push_back({{"prompt", prompt},
                              {"held_out", held_out},
                              {"ms", 1e-6 * found->second},
                              {"replayed_ms", 1e-6 * ns},
                              {"error", error}});
    own.add(error, data.id(), prompt);
    all.prompts.add(error, data.id(), prompt);
    if (held_out) all.held_out_prompts.add(error, data.id(), prompt);
  }
  row["prompt_errors"] = own.summary();
}

/// The prompts that a calibration or a fit has seen. The calibration of the measured run decodes its prompts.
struct SeenPrompts {
  std::set<std::string> priced, fitted;
};

/// The row of a case; absent if nothing predicts it. Throws Error as replay_trees() does.
std::optional<json> compared_row(const CaseData& data, const ReplayCheck& check, const CheckPrices& prices,
                                 const SeenPrompts& of_check, CheckErrors& errors) {
  const PricedCase costs = prices.of(data, *check.measured);
  const auto replay = checked_replay(check.sources, data, costs.costs);
  if (!replay) return std::nullopt;
  std::vector<std::size_t> all;
  for (const auto& [prompt, texts] : replay->texts) all.insert(all.end(), texts.begin(), texts.end());
  std::sort(all.begin(), all.end());
  const PredictedSteps predicted = replay->predict(all);
  if (predicted.steps == 0) return std::nullopt;
  std::set<std::string> seen = of_check.priced;
  if (replay->certainty == Certainty::fitted) seen.insert(of_check.fitted.begin(), of_check.fitted.end());
  const bool held_out =
      std::ranges::none_of(data.prompts, [&](const std::string& prompt) { return seen.contains(prompt); });
  const json metrics = compute_metrics(data, {"tau", "speedup"});
  json row = {{"case", data.id()},
              {"certainty", std::string(to_string(replay->certainty))},
              {"calibrated", costs.calibrated},
              {"held_out", held_out},
              {"tau", metrics.value("tau", json())},
              {"replayed_tau", predicted.tau},
              {"speedup", metrics.value("speedup", json())},
              {"replayed_speedup", nullptr},
              {"error", nullptr},
              {"prompts", json::array()},
              {"prompt_errors", nullptr}};
  if (predicted.step_ns) {
    const double speedup = predicted.tau * predicted.t_ar / *predicted.step_ns;
    row["replayed_speedup"] = speedup;
    if (row["speedup"].is_number()) {
      const double error = speedup / row["speedup"].get<double>() - 1;
      row["error"] = error;
      errors.speedups.add(error, data.id(), nullptr);
      if (!costs.calibrated) errors.uncalibrated_speedups.add(error, data.id(), nullptr);
      if (held_out) errors.held_out_speedups.add(error, data.id(), nullptr);
    }
    add_prompts(data, *replay, seen, row, errors);
  }
  return row;
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

json replay_check(const ReplayCheck& check) {
  const RunData& measured = *check.measured;
  const CheckPrices prices(check.prices);
  SeenPrompts seen{.priced = shared_prompts(measured, check.prices ? *check.prices : measured), .fitted = {}};
  if (check.fitted_to) seen.fitted = shared_prompts(measured, *check.fitted_to);
  CheckErrors errors;
  json out = {{"cases", json::array()}, {"left_out", json::array()}};
  for (const auto& data : measured.cases) {
    if (!data->reference || is_trace(*data)) continue;
    try {
      if (auto row = compared_row(*data, check, prices, seen, errors))
        out["cases"].push_back(*std::move(row));
    } catch (const Error& error) {
      out["left_out"].push_back({{"case", data->id()}, {"reason", error.what()}});
    }
  }
  out["speedup_errors"] = errors.speedups.summary();
  out["uncalibrated_speedup_errors"] = errors.uncalibrated_speedups.summary();
  out["held_out_speedup_errors"] = errors.held_out_speedups.summary();
  out["prompt_errors"] = errors.prompts.summary();
  out["held_out_prompt_errors"] = errors.held_out_prompts.summary();
  return out;
}

std::string replay_check_text(const json& comparison) {
  Table table{.header = {"case", "tau", "replayed tau", "tau is", "speedup", "replayed speedup", "error",
                         "costs of", "prompts: median error", "largest"},
              .rows = {},
              .right = {false, true, true, false, true, true, true, false, true, true}};
  for (const json& row : comparison["cases"]) {
    const json& errors = row["prompt_errors"];
    const auto of_prompts = [&](const char* name) {
      return percent_text(errors.is_object() ? errors[name] : json(), false);
    };
    const std::string costs = row["replayed_speedup"].is_null() ? "—"
                              : row["calibrated"].get<bool>()   ? "the case"
                                                                : "other cases";
    table.rows.push_back({row["case"], number_text(row["tau"], 5), number_text(row["replayed_tau"], 5),
                          row["certainty"], number_text(row["speedup"]), number_text(row["replayed_speedup"]),
                          percent_text(row["error"], true), costs, of_prompts("median"),
                          of_prompts("largest")});
  }
  std::string left_out;
  for (const json& one : comparison["left_out"]) {
    left_out +=
        fmt::format("left out: {}: {}\n", one["case"].get<std::string>(), one["reason"].get<std::string>());
  }
  return to_text(table) + left_out + errors_text("speedup of a case", comparison["speedup_errors"]) +
         errors_text("speedup of a case that was not calibrated", comparison["uncalibrated_speedup_errors"]) +
         errors_text("speedup of a case on held-out prompts", comparison["held_out_speedup_errors"]) +
         errors_text("time of a prompt", comparison["prompt_errors"]) +
         errors_text("time of a held-out prompt", comparison["held_out_prompt_errors"]);
}

}  // namespace speclab
