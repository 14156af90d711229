#include "experiments/simulate/repricing.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/base/error.h"
#include "core/theory/step_costs.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/simulate/case_pricing.h"
#include "experiments/simulate/run_shapes.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kMostGamma = 32;  ///< longest chain of the search for the break-even acceptance

json priced_case(const CaseData& data, const Pricing& pricing, const json& here) {
  json row = {{"case", data.id()},  {"batch", pricing.batch},  {"tau", nullptr},
              {"here", here},       {"speedup", nullptr},      {"speedup_ci95", nullptr},
              {"step_ms", nullptr}, {"ms_per_token", nullptr}, {"joules_per_token", nullptr},
              {"there", nullptr},   {"error", nullptr},        {"problem", nullptr}};
  try {
    const PricedSteps steps(data);
    const theory::Calibration costs = device_costs(steps, pricing);
    const auto found = steps.at(costs);
    if (!found) return row["problem"] = "no steps", row;
    row["tau"] = found->tau;
    row["speedup"] = found->speedup;
    row["speedup_ci95"] = interval_json(steps.interval(costs));
    row["step_ms"] = found->step_ns / 1e6;
    row["ms_per_token"] = found->step_ns / found->tau / pricing.batch / 1e6;
    if (pricing.device.watts > 0)
      row["joules_per_token"] = pricing.device.watts * found->step_ns / 1e9 / found->tau / pricing.batch;
    if (const auto there = pricing.device.measured.find(data.id());
        pricing.batch == 1 && there != pricing.device.measured.end()) {
      row["there"] = there->second;
      row["error"] = found->speedup / there->second - 1;
    }
  } catch (const Error& error) {
    row["problem"] = error.what();
  }
  return row;
}

json draft_row(const std::string& draft, const LongestChain& chain, const Pricing& pricing) {
  const CaseData& data = *chain.data;
  const theory::Calibration costs = device_costs(PricedSteps(data), pricing);
  const double c = simulated_c(costs, chain.gamma);
  std::vector<double> acceptance;
  for (const json& value : (*chain.metrics)["acceptance_at"]) {
    if (!value.is_number()) break;
    acceptance.push_back(value.get<double>());
  }
  const theory::OptimalGamma best = theory::optimal_gamma_positional(acceptance, c, costs.target);
  const auto even = theory::break_even_alpha(c, costs.target, kMostGamma);
  return {{"draft", draft},
          {"batch", pricing.batch},
          {"case", data.id()},
          {"alpha", chain.metrics->value("alpha", json())},
          {"c", c},
          {"best_gamma", best.gamma},
          {"at_limit", best.at_limit},
          {"speedup", best.speedup},
          {"break_even_alpha", even ? json(*even) : json()}};
}

}  // namespace

json repriced(const RunData& run, const SimulatedDevice& device, const std::vector<int>& batches) {
  for (const int batch : batches) {
    if (batch < 1) {
      throw Error({.what = "--batch",
                   .got = fmt::format("{}", batch),
                   .expected = "numbers of sequences, 1 or more",
                   .advice = "For example --batch 1,8,64."});
    }
  }
  const ModelShapes shapes = run_shapes(run.environment, device.weight_bytes, device.kv_bytes);
  std::vector<json> metrics;
  for (const auto& data : run.cases) metrics.push_back(compute_metrics(*data));
  json out = {{"device", device.name},   {"kind", to_string(device.kind)},
              {"source", device.source}, {"error", device.error},
              {"simulation", true},      {"cases", json::array()},
              {"drafts", json::array()}};
  for (const int batch : batches) {
    for (std::size_t i = 0; i < run.cases.size(); ++i) {
      const CaseData& data = *run.cases[i];
      if (!data.reference) continue;
      const Pricing pricing{device, shapes, batch, mean_context(data)};
      out["cases"].push_back(priced_case(data, pricing, metrics[i].value("speedup", json())));
    }
    for (const auto& [draft, chain] : longest_chains(run, metrics)) {
      try {
        const Pricing pricing{device, shapes, batch, mean_context(*chain.data)};
        out["drafts"].push_back(draft_row(draft, chain, pricing));
      } catch (const Error&) {  // priced_case says why
      }
    }
  }
  return out;
}

std::string repriced_text(const json& simulation) {
  const auto percent = [](const json& value) {
    return value.is_number() ? fmt::format("{:+.1f} %", 100 * value.get<double>()) : std::string("—");
  };
  std::string text = fmt::format(
      "Simulated on {}: acceptance as measured in the run, times of the device.\nSource of the times: {}\n",
      simulation["device"].get<std::string>(), simulation["source"].get<std::string>());
  if (const std::string error = simulation["error"]; !error.empty())
    text += "How far off the times may be: " + error + "\n";
  Table cases{.header = {"case", "batch", "tau", "measured here", "simulated speedup", "simulated ms/token",
                         "measured there", "error"},
              .rows = {},
              .right = {false, true, true, true, true, true, true, true}};
  const bool energy = std::ranges::any_of(
      simulation["cases"], [](const json& row) { return row["joules_per_token"].is_number(); });
  if (energy) cases.header.push_back("simulated J/token"), cases.right.push_back(true);
  std::string problems;
  for (const json& row : simulation["cases"]) {
    if (!row["problem"].is_null()) {
      problems += fmt::format("{}: {}\n", row["case"].get<std::string>(), row["problem"].get<std::string>());
      continue;
    }
    cases.rows.push_back({row["case"], row["batch"].dump(), number_text(row["tau"]), number_text(row["here"]),
                          interval_text(row, "speedup"), number_text(row["ms_per_token"]),
                          number_text(row["there"]), percent(row["error"])});
    if (energy) cases.rows.back().push_back(number_text(row["joules_per_token"]));
  }
  text += "\n" + to_text(cases);
  if (!simulation["drafts"].empty()) {
    Table drafts{.header = {"draft", "batch", "alpha here", "simulated c", "best gamma", "simulated speedup",
                            "break-even alpha"},
                 .rows = {},
                 .right = {false, true, true, true, true, true, true}};
    for (const json& row : simulation["drafts"]) {
      drafts.rows.push_back(
          {row["draft"], row["batch"].dump(), number_text(row["alpha"]), number_text(row["c"]),
           fmt::format("{}{}", row["best_gamma"].dump(), row["at_limit"].get<bool>() ? " or more" : ""),
           number_text(row["speedup"]), number_text(row["break_even_alpha"])});
    }
    text += "\n\n" + to_text(drafts);
  }
  if (!problems.empty()) text += "\n\nNot simulated:\n" + problems;
  return text;
}

}  // namespace speclab
