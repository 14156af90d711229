#include "experiments/optimize/config_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "core/base/error.h"
#include "experiments/analysis/lookahead_verdict.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/noise/ratio_noise.h"

namespace speclab {
namespace {

using nlohmann::json;

double predicted_speedup_of(const json& setting) { return setting.at("speedup").get<double>(); }

/// True if both settings are of one traced case and not told apart (kToldApart). `a` is not slower than `b`.
bool stands_for(const json& a, const json& b) {
  return a.at("case").is_string() && a.at("case") == b.at("case") &&
         predicted_speedup_of(b) > predicted_speedup_of(a) * (1 - kToldApart);
}

/// What a case measured; null if it has errors or no speedup.
json measurement_of(const CaseData& data, const std::optional<double>& noise) {
  const json metrics = compute_metrics(data, {"tau", "speedup"});
  const json speedup = metrics.value("speedup", json());
  if (!speedup.is_number() || !data.errors.empty()) return nullptr;
  const json ci = metrics.value("speedup_ci95", json());
  return {{"case", data.id()},
          {"tau", metrics.value("tau", json())},
          {"speedup", speedup},
          {"speedup_ci95", ci},
          {"prompts", data.prompts.size()},
          {"verdict", judge_speedup(ci, noise ? json(*noise) : json())}};
}

std::string error_words(const json& error) {
  return error.is_number() ? fmt::format("{:+.1f} %", 100 * error.get<double>()) : "—";
}

}  // namespace

std::vector<std::size_t> settings_to_measure(const std::vector<json>& settings, std::size_t count) {
  std::vector<std::size_t> order(settings.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return predicted_speedup_of(settings[a]) > predicted_speedup_of(settings[b]);
  });
  std::vector<std::size_t> chosen, passed_over;
  for (const std::size_t index : order) {
    const bool covered = std::ranges::any_of(
        chosen, [&](std::size_t other) { return stands_for(settings[other], settings[index]); });
    if (covered) passed_over.push_back(index);
    else if (chosen.size() < count) chosen.push_back(index);
  }
  for (const std::size_t index : passed_over) {
    if (chosen.size() < count) chosen.push_back(index);
  }
  return chosen;
}

json measured_choice(const std::vector<json>& chosen, const RunData& measured) {
  std::vector<const CaseData*> cases;
  for (const auto& data : measured.cases) {
    if (data->reference != nullptr || !data->config.value("reference", json()).is_null())
      cases.push_back(data.get());
  }
  if (cases.size() != chosen.size()) {
    throw Error({.what = "the measurement of speclab optimize config",
                 .got = fmt::format("{} cases", cases.size()),
                 .expected = fmt::format("the {} chosen settings", chosen.size()),
                 .advice = "Measure again, into another folder."});
  }
  const std::optional<double> noise = ratio_noise(measured.cases);
  json out = {{"settings", json::array()}, {"ratio_noise", noise ? json(*noise) : json()}, {"best", nullptr}};
  double most = 1;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    json row = chosen[i];
    row["measured"] = measurement_of(*cases[i], noise);
    row["error"] = nullptr;
    if (row["measured"].is_object()) {
      const double speedup = row["measured"]["speedup"].get<double>();
      row["error"] = predicted_speedup_of(row) / speedup - 1;
      if (speedup > most) {
        most = speedup;
        out["best"] = i;
      }
    }
    out["settings"].push_back(std::move(row));
  }
  return out;
}

std::string choice_text(const json& choice) {
  Table table{.header = {"setting", "predicted by", "tau", "predicted speedup", "measured tau",
                         "measured speedup", "error", "against autoregressive"},
              .rows = {},
              .right = {false, false, true, true, true, true, true, false}};
  for (const json& row : choice.at("settings")) {
    const json& found = row.at("measured");
    const bool there = found.is_object();
    table.rows.push_back(
        {row.at("what").get<std::string>(), row.at("how").get<std::string>(), number_text(row.at("tau")),
         interval_text(row, "speedup"), there ? number_text(found.at("tau")) : "—",
         there ? interval_text(found, "speedup", 3, found.at("prompts").get<std::size_t>()) : "failed",
         error_words(row.at("error")), there ? found.at("verdict").get<std::string>() : "—"});
  }
  std::string text = to_text(table);
  const json& best = choice.at("best");
  if (best.is_null()) return text + "\nNo measured setting is faster than autoregressive decoding.\n";
  const json& setting = choice.at("settings").at(best.get<std::size_t>());
  return text +
         fmt::format("\nThe fastest measured setting is {}: {} times as fast as autoregressive decoding.\n",
                     setting.at("what").get<std::string>(), interval_text(setting.at("measured"), "speedup"));
}

}  // namespace speclab
