#include "experiments/simulate/repricing.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/base/error.h"
#include "core/theory/alpha_estimators.h"
#include "core/theory/step_costs.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/fed_rows.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/simulate/run_shapes.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kMostGamma = 32;  ///< longest chain of the search for the break-even acceptance

/// A device that prices the models of one run for one batch size.
struct Pricing {
  const SimulatedDevice& device;
  const std::map<std::string, theory::DecoderShape>& shapes;
  int batch = 1;
  double context = 0;

  double forward_ns(const std::string& model, int rows) const {
    simulate::Forward forward{.model = model, .rows = rows, .context = context, .batch = batch};
    if (const auto found = shapes.find(model); found != shapes.end()) forward.shape = found->second;
    return device.device->forward_ns(forward);
  }
};

/// The mean number of committed tokens before a step of the reference.
double mean_context(const CaseData& data) {
  const Work work = target_work(*data.reference);
  if (work.rows == 0) return 0;
  return std::max(0.0, static_cast<double>(work.keys) / static_cast<double>(work.rows) - 1);
}

int most_rows(const std::vector<FedRows>& fed) {
  std::size_t most = 2;
  for (const FedRows& one : fed) most = std::max(most, one.rows.size());
  return static_cast<int>(most) - 1;
}

double drafted_tokens(const std::vector<FedRows>& fed) {
  return std::accumulate(fed.begin(), fed.end(), 0.0,
                         [](double sum, const FedRows& one) { return sum + one.drafted; });
}

/// The draft models of a case, each with its work in repeat 0.
std::vector<std::pair<std::string, Work>> draft_works(const CaseData& data) {
  const std::vector<std::string> names = draft_names(data.config);
  if (names.size() == 1) return {{names.front(), draft_work(data)}};
  const std::vector<Work> works = work_by_draft(data);
  if (works.size() != names.size()) {
    throw Error({.what = data.id(),
                 .got = fmt::format("{} drafts, work of {}", names.size(), works.size()),
                 .expected = "a record that counts the work of each draft",
                 .advice = "Run the config again with this version."});
  }
  std::vector<std::pair<std::string, Work>> out;
  for (std::size_t i = 0; i < names.size(); ++i) out.emplace_back(names[i], works[i]);
  return out;
}

/// Sets the draft times of `costs`, which has the device's target times.
void price_drafting(const CaseData& data, const Pricing& pricing, double drafted,
                    theory::Calibration& costs) {
  const auto works = draft_works(data);
  if (!works.empty()) {
    for (const auto& [name, work] : works) {
      if (work.calls == 0 || drafted == 0) continue;
      const auto calls = static_cast<double>(work.calls);
      const int rows = std::max(1, static_cast<int>(std::lround(static_cast<double>(work.rows) / calls)));
      costs.draft_token += calls * pricing.forward_ns(name, rows) / drafted;
    }
    return;
  }
  const auto here = calibration_of(data, data.calibration);
  if (!here) {
    throw Error({.what = data.id(),
                 .got = "a calibration without the drafting cost of this case, which has no draft model",
                 .expected = "a run whose calibration has costs of the case and of its reference",
                 .advice = ""});
  }
  if (draft_work(data).calls > 0) {  // the target drafts for itself
    costs.draft_token = here->draft_token / here->target.at(1) * costs.target.at(1);
    costs.draft_step = here->draft_step / here->target.at(1) * costs.target.at(1);
  } else {
    costs.draft_token = pricing.batch * here->draft_token;
    costs.draft_step = pricing.batch * here->draft_step;
  }
}

/// The costs of a case on the device, in nanoseconds. Throws Error if the device cannot price it.
theory::Calibration device_costs(const CaseData& data, const Pricing& pricing,
                                 const std::vector<FedRows>& fed) {
  if (pricing.batch == 1 && !pricing.device.calibration.is_null()) {
    if (const auto known = calibration_of(data, pricing.device.calibration)) return *known;
  }
  std::map<int, double> target;
  for (int rows = 1; rows <= most_rows(fed); ++rows) target[rows] = pricing.forward_ns("", rows);
  theory::Calibration costs;
  costs.target = theory::RowTimes(std::move(target));
  costs.other = pricing.device.device->step_ns();
  costs.t_ar = costs.target.at(1) + costs.other;
  price_drafting(data, pricing, drafted_tokens(fed), costs);
  return costs;
}

double speedup_over(const std::vector<FedRows>& fed, std::span<const std::size_t> prompts,
                    const theory::Calibration& costs, double share, double* step_ns = nullptr,
                    double* tau = nullptr) {
  const theory::RowsExplainInput input = rows_input(fed, prompts, costs, share);
  if (input.tau == 0) return std::nan("");
  const theory::StepTimes times = theory::calibrated_rows_step(input);
  if (step_ns != nullptr) *step_ns = times.total();
  if (tau != nullptr) *tau = input.tau;
  return input.tau * costs.t_ar / times.total();
}

json priced_case(const CaseData& data, const Pricing& pricing, const json& here) {
  json row = {{"case", data.id()},  {"batch", pricing.batch},  {"tau", nullptr},
              {"here", here},       {"speedup", nullptr},      {"speedup_ci95", nullptr},
              {"step_ms", nullptr}, {"ms_per_token", nullptr}, {"joules_per_token", nullptr},
              {"there", nullptr},   {"error", nullptr},        {"problem", nullptr}};
  try {
    const std::vector<FedRows> fed = fed_rows(data);
    const theory::Calibration costs = device_costs(data, pricing, fed);
    const double rows = rows_fed_per_step(data);
    const double share = feeds_probes(data) && rows > 0 ? std::min(1.0, row_equivalents(data) / rows) : 1;
    std::vector<std::size_t> all(fed.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    double step_ns = 0, tau = 0;
    const double speedup = speedup_over(fed, all, costs, share, &step_ns, &tau);
    if (std::isnan(speedup)) return row["problem"] = "no steps", row;
    row["tau"] = tau;
    row["speedup"] = speedup;
    row["speedup_ci95"] = interval_json(stats::bootstrap_interval(
        fed.size(),
        [&](std::span<const std::size_t> drawn) { return speedup_over(fed, drawn, costs, share); },
        data.bootstrap()));
    row["step_ms"] = step_ns / 1e6;
    row["ms_per_token"] = step_ns / tau / pricing.batch / 1e6;
    if (pricing.device.watts > 0)
      row["joules_per_token"] = pricing.device.watts * step_ns / 1e9 / tau / pricing.batch;
    if (const auto there = pricing.device.measured.find(data.id());
        pricing.batch == 1 && there != pricing.device.measured.end()) {
      row["there"] = there->second;
      row["error"] = speedup / there->second - 1;
    }
  } catch (const Error& error) {
    row["problem"] = error.what();
  }
  return row;
}

struct LongestChain {
  const CaseData* data = nullptr;
  const json* metrics = nullptr;
  int gamma = 0;
};

/// For each draft model: the case with the longest chains of constant length that this model alone drafts. A
/// trace (a case with "emit_at_most": 1, trace.h) needs no constant length: the length of its longest draft
/// counts.
std::map<std::string, LongestChain> longest_chains(const RunData& run, const std::vector<json>& metrics) {
  std::map<std::string, LongestChain> chains;
  for (std::size_t i = 0; i < run.cases.size(); ++i) {
    const CaseData& data = *run.cases[i];
    const std::vector<std::string> names = draft_names(data.config);
    if (names.size() != 1 || !data.reference || feeds_probes(data) || data.rounds().empty()) continue;
    const theory::DraftLengths lengths = theory::draft_length_counts(data.rounds());
    // A trace drafts at every position, also near the end of a text, where drafts are short.
    const bool trace = data.options().value("emit_at_most", 0) == 1;
    const auto gamma =
        trace ? std::optional(static_cast<int>(lengths.size()) - 1) : constant_gamma(data, lengths);
    if (!gamma || draft_work(data).calls == 0 || !metrics[i].value("acceptance_at", json()).is_array())
      continue;
    LongestChain& chain = chains[names.front()];
    if (*gamma > chain.gamma) chain = {&data, &metrics[i], *gamma};
  }
  return chains;
}

json draft_row(const std::string& draft, const LongestChain& chain, const Pricing& pricing) {
  const CaseData& data = *chain.data;
  const std::vector<FedRows> fed = fed_rows(data);
  const theory::Calibration costs = device_costs(data, pricing, fed);
  const double c = (costs.draft_token + costs.draft_step / std::max(1, chain.gamma)) / costs.target.at(1);
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
  const auto shapes = run_shapes(run, device.weight_bytes);
  std::vector<json> metrics;
  for (const auto& data : run.cases) metrics.push_back(compute_metrics(*data));
  json out = {{"device", device.name},  {"kind", device.kind}, {"source", device.source},
              {"error", device.error},  {"simulation", true},  {"cases", json::array()},
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
  std::string problems;
  for (const json& row : simulation["cases"]) {
    if (!row["problem"].is_null()) {
      problems += fmt::format("{}: {}\n", row["case"].get<std::string>(), row["problem"].get<std::string>());
      continue;
    }
    cases.rows.push_back({row["case"], row["batch"].dump(), number_text(row["tau"]), number_text(row["here"]),
                          interval_text(row, "speedup"), number_text(row["ms_per_token"]),
                          number_text(row["there"]), percent(row["error"])});
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
