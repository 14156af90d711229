#include "experiments/simulate/case_pricing.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/theory/alpha_estimators.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

double drafted_tokens(const std::vector<FedRows>& fed) {
  return std::accumulate(fed.begin(), fed.end(), 0.0,
                         [](double sum, const FedRows& one) { return sum + one.drafted; });
}

/// Sets the draft times of `costs`, which has the device's target times.
void price_drafting(const PricedSteps& steps, const Pricing& pricing, theory::Calibration& costs) {
  const CaseData& data = steps.data();
  const auto works = draft_works(data);
  if (!works.empty()) {
    const double drafted = drafted_tokens(steps.fed());
    for (const auto& [name, work] : works) {
      if (work.calls == 0 || drafted == 0) continue;
      const auto calls = static_cast<double>(work.calls);
      const double rows = std::max(1.0, static_cast<double>(work.rows) / calls);
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

theory::RowTimes target_times(const PricedSteps& steps, const Pricing& pricing) {
  std::map<int, double> times;
  for (int rows = 1; rows <= steps.most_rows(); ++rows) times[rows] = pricing.forward_ns("", rows);
  return theory::RowTimes(std::move(times));
}

}  // namespace

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

double Pricing::forward_ns(const std::string& model, int rows) const {
  simulate::Forward forward{.model = model, .rows = rows, .context = context, .batch = batch};
  if (const auto found = shapes.find(model); found != shapes.end()) forward.shape = found->second;
  return device.device->forward_ns(forward);
}

double Pricing::forward_ns(const std::string& model, double rows) const {
  return theory::between_whole_rows(rows, [&](int whole) { return forward_ns(model, whole); });
}

double mean_context(const CaseData& data) {
  const Work work = target_work(*data.reference);
  if (work.rows == 0) return 0;
  return std::max(0.0, static_cast<double>(work.keys) / static_cast<double>(work.rows) - 1);
}

PricedSteps::PricedSteps(const CaseData& data) : data_(data), fed_(fed_rows(data)) {
  const double rows = rows_fed_per_step(data);
  if (feeds_probes(data) && rows > 0) share_ = std::min(1.0, row_equivalents(data) / rows);
  double tokens = 0, steps = 0;
  for (const FedRows& one : fed_) tokens += one.tokens, steps += one.steps;
  if (steps > 0) tau_ = tokens / steps;
}

std::optional<PricedSteps::Result> PricedSteps::of(std::span<const std::size_t> prompts,
                                                   const theory::Calibration& costs) const {
  const theory::RowsExplainInput input = rows_input(fed_, prompts, costs, share_);
  if (input.tau == 0) return std::nullopt;
  const double step_ns = theory::calibrated_rows_step(input).total();
  return Result{.tau = input.tau, .step_ns = step_ns, .speedup = input.tau * costs.t_ar / step_ns};
}

std::optional<PricedSteps::Result> PricedSteps::at(const theory::Calibration& costs) const {
  std::vector<std::size_t> all(fed_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return of(all, costs);
}

std::optional<stats::Interval> PricedSteps::interval(const theory::Calibration& costs) const {
  return stats::bootstrap_interval(
      fed_.size(),
      [&](std::span<const std::size_t> drawn) {
        const auto found = of(drawn, costs);
        return found ? found->speedup : std::nan("");
      },
      data_.bootstrap());
}

int PricedSteps::most_rows() const {
  std::size_t most = 2;
  for (const FedRows& one : fed_) most = std::max(most, one.rows.size());
  return static_cast<int>(most) - 1;
}

theory::Calibration device_costs(const PricedSteps& steps, const Pricing& pricing) {
  if (drafts_ahead(steps.data())) {
    throw Error({.what = steps.data().id(),
                 .got = "a case that drafts while the target verifies",
                 .expected = "a case whose forwards follow one another",
                 .advice = "speclab explain compares this case with the law of its timeline."});
  }
  if (pricing.batch == 1 && !pricing.device.calibration.is_null()) {
    if (auto known = calibration_of(steps.data(), pricing.device.calibration)) {
      if (pricing.device.contexts == 1) return *known;
      // The table has several contexts, so the forwards get their times at the context of the run.
      const double before = known->target.at(1);
      known->target = target_times(steps, pricing);
      known->t_ar += known->target.at(1) - before;
      return *known;
    }
  }
  theory::Calibration costs;
  costs.target = target_times(steps, pricing);
  costs.other = pricing.device.device->step_ns();
  costs.t_ar = costs.target.at(1) + costs.other;
  price_drafting(steps, pricing, costs);
  return costs;
}

std::map<std::string, LongestChain> longest_chains(const RunData& run, const std::vector<json>& metrics) {
  std::map<std::string, LongestChain> chains;
  for (std::size_t i = 0; i < run.cases.size(); ++i) {
    const CaseData& data = *run.cases[i];
    const std::vector<std::string> names = draft_names(data.config);
    if (names.size() != 1 || !data.reference || drafts_ahead(data) || feeds_probes(data) ||
        data.rounds().empty())
      continue;
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

double simulated_c(const theory::Calibration& costs, int gamma) {
  return (costs.draft_token + costs.draft_step / std::max(1, gamma)) / costs.target.at(1);
}

}  // namespace speclab
