#include "experiments/simulate/replay/check_prices.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "experiments/analysis/case_costs.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/simulate/case_pricing.h"
#include "experiments/simulate/replay/checked_replay.h"

namespace speclab {
namespace {

using nlohmann::json;

double drafted_tokens_of(const CaseData& data) {
  double drafted = 0;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) drafted += static_cast<double>(step.drafted.size());
    }
  });
  return drafted;
}

/// Time of the draft models' forwards for a drafted token; absent if the table lacks a draft model.
std::optional<double> draft_token_ns(const CaseData& data, const json& table) {
  const double drafted = drafted_tokens_of(data);
  double ns = 0;
  for (const auto& [name, work] : draft_works(data)) {
    if (work.calls == 0 || drafted == 0) continue;
    const auto found = table.at("drafts").find(name);
    if (found == table.at("drafts").end()) return std::nullopt;
    std::map<int, double> times;
    for (const auto& [rows, time] : found->at("n_ns").items()) times[std::stoi(rows)] = time.get<double>();
    const theory::RowTimes forward(std::move(times));
    const auto calls = static_cast<double>(work.calls);
    const double rows = std::max(1.0, static_cast<double>(work.rows) / calls);
    ns += calls * forward.at_mean(rows) / drafted;
  }
  return ns;
}

/// Costs of a case that the table lacks, from the forwards and the autoregressive steps of the table.
std::optional<theory::Calibration> costs_from_table(const CaseData& data, const json& table) {
  if (table.is_null() || !data.reference || feeds_probes(data)) return std::nullopt;
  const auto base = table.at("cases").find(data.reference->id());
  if (base == table.at("cases").end() || base->is_null()) return std::nullopt;
  if (draft_names(data.config).empty() && draft_work(data).calls > 0) return std::nullopt;
  const auto draft = draft_token_ns(data, table);
  if (!draft) return std::nullopt;
  theory::Calibration costs;
  costs.target = calibrated_row_times(table);
  costs.t_ar = table.value("reference_ns", costs.target.at(1)) +
               base->at("draft_ns").at("constant").get<double>() +
               base->at("accept_ns").at("constant").get<double>() +
               base->at("accept_ns").at("slope").get<double>() + base->at("other_ns").get<double>();
  costs.draft_token = *draft;
  costs.other = std::max(0.0, costs.t_ar - costs.target.at(1));
  return costs;
}

/// The turns of each prompt by id; null if the record does not keep them.
std::map<std::string, json> texts_of_run(const RunData& run) {
  std::map<std::string, json> out;
  for (const json& prompt : run.config.value("prompts", json::array()))
    out[prompt.at("id").get<std::string>()] = prompt.value("turns", json());
  return out;
}

}  // namespace

PricedCase CheckPrices::of(const CaseData& data, const RunData& measured) const {
  if (other_ == nullptr) {
    auto own = calibration_of(data, measured.calibration);
    const bool found = own.has_value();
    return {std::move(own), found};
  }
  for (const bool same_id : {true, false}) {
    for (const auto& there : other_->cases) {
      if ((there->id() == data.id()) != same_id || !same_drafter(*there, data)) continue;
      if (auto costs = calibration_of(*there, other_->calibration)) return {std::move(costs), same_id};
    }
  }
  return {costs_from_table(data, other_->calibration), false};
}

std::set<std::string> shared_prompts(const RunData& measured, const RunData& other) {
  const std::map<std::string, json> there = texts_of_run(other);
  std::set<std::string> out;
  for (const auto& [id, text] : texts_of_run(measured)) {
    const auto found = there.find(id);
    if (found == there.end()) continue;
    if (text.is_null() || found->second.is_null() || text == found->second) out.insert(id);
  }
  return out;
}

}  // namespace speclab
