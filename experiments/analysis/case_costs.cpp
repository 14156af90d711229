#include "experiments/analysis/case_costs.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/decoding/loop/loop_options.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

/// The calibrated step costs of a case; null if the calibration is missing or lacks the case, or if the case
/// failed in it.
const json* step_costs_of(const json& table, const std::string& id) {
  if (table.is_null()) return nullptr;
  const json& cases = table.at("cases");
  const auto found = cases.find(id);
  return found == cases.end() || found->is_null() ? nullptr : &*found;
}

double linear(const json& cost, double count) {
  return cost.at("constant").get<double>() + cost.at("slope").get<double>() * count;
}

/// Forwards of the draft model per drafted token. Tokens that were copied lower this number.
std::optional<double> draft_calls_per_drafted_token(const json& metrics) {
  const auto calls = metric_number(metrics, "draft_calls"), tokens = metric_number(metrics, "tokens"),
             steps = metric_number(metrics, "steps"), drafted = metric_number(metrics, "drafted_per_step");
  if (!calls || !tokens || !steps || !drafted) return std::nullopt;
  const double drafted_tokens = *drafted * *steps;
  return drafted_tokens > 0 ? *calls * *tokens / drafted_tokens : 0.0;
}

}  // namespace

std::optional<double> metric_number(const json& metrics, const char* name) {
  const auto found = metrics.find(name);
  if (found == metrics.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

bool feeds_probes(const CaseData& data) {
  return any_step(data, [](const StepRecord& step) { return !step.probes.empty(); });
}

bool feeds_further_rows(const CaseData& data) {
  return feeds_probes(data) || data.config.value("verify", "") == to_string(VerifyWith::batch_of_prefixes);
}

double share_done_by_drafting(const CaseData& data) {
  if (!data.reference || !data.config["draft"].is_null() || draft_work(data).calls == 0) return 0;
  double steps = 0, rows = 0, drafted = 0;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    steps += step_count(line);
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) {
        rows += step.rows;
        drafted += static_cast<double>(step.drafted.size());
      }
    }
  });
  const Work own = target_work(data), base = target_work(*data.reference);
  // A verification that goes on from drafted rows first runs the layers that the last drafted token lacks, in
  // a forward of their own.
  if (static_cast<double>(own.calls) <= steps || drafted == 0 || base.rows == 0 || base.flops <= 0) return 0;
  const double of_a_row = base.flops / static_cast<double>(base.rows);
  return std::clamp((rows * of_a_row - own.flops) / (drafted * of_a_row), 0.0, 1.0);
}

std::optional<theory::Calibration> calibration_of(const CaseData& data, const json& table) {
  if (!data.reference) return std::nullopt;
  const json* own = step_costs_of(table, data.id());
  const json* base = step_costs_of(table, data.reference->id());
  if (!own || !base) return std::nullopt;
  theory::Calibration calibration;
  calibration.target = calibrated_row_times(table);  // in nanoseconds
  calibration.done_share = share_done_by_drafting(data);
  calibration.t_ar = table.value("reference_ns", calibration.target.at(1)) + linear(base->at("draft_ns"), 0) +
                     linear(base->at("accept_ns"), 1) + base->at("other_ns").get<double>();
  calibration.draft_token = own->at("draft_ns").at("slope");
  calibration.draft_step = own->at("draft_ns").at("constant");
  calibration.accept_step = own->at("accept_ns").at("constant");
  calibration.accept_row = own->at("accept_ns").at("slope");
  calibration.other = own->at("other_ns");
  return calibration;
}

std::optional<int> constant_gamma(const CaseData& data, const theory::DraftLengths& lengths) {
  const int longest = static_cast<int>(lengths.size()) - 1;
  if (longest < 1) return std::nullopt;
  double steps = 0, shorter = 0;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      int left = 0;  // tokens from this step to the end of the text
      for (auto step = turn.steps.rbegin(); step != turn.steps.rend(); ++step) {
        left += step->emitted;
        ++steps;
        if (static_cast<int>(step->drafted.size()) < longest && left > longest) ++shorter;
      }
    }
  });
  if (shorter > .05 * steps) return std::nullopt;
  return longest;
}

std::optional<double> cost_per_drafted_token(const CaseData& data, const json& metrics, const json& table) {
  if (drafts_on_target(data)) return cost_of_drafting(table, data.id());
  if (data.config["draft"].is_null()) {
    // Only a strategy that drafts on the target itself has draft calls without a draft model.
    if (metric_number(metrics, "draft_calls").value_or(0) == 0) return 0.0;
    return cost_of_drafting(table, data.id());
  }
  if (table.is_null()) return std::nullopt;
  if (const std::vector<std::string> names = draft_names(data.config); names.size() > 1) {
    const std::vector<Work> works = work_by_draft(data);
    const auto steps = metric_number(metrics, "steps"), drafted = metric_number(metrics, "drafted_per_step");
    if (works.size() != names.size() || !steps || !drafted) return std::nullopt;
    double cost = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto measured = table.at("drafts").find(names[i]);
      if (measured == table.at("drafts").end()) return std::nullopt;
      cost += measured->at("c").get<double>() * static_cast<double>(works[i].calls);
    }
    return *drafted * *steps > 0 ? cost / (*drafted * *steps) : 0.0;
  }
  const auto found = table.at("drafts").find(data.config["draft"].get<std::string>());
  const auto calls = draft_calls_per_drafted_token(metrics);
  if (found == table.at("drafts").end() || !calls) return std::nullopt;
  return found->at("c").get<double>() * *calls;
}

}  // namespace speclab
