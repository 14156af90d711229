#include "experiments/analysis/case_waterfall.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/theory/alpha_estimators.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/case_noise.h"
#include "experiments/analysis/strategy_theory.h"
#include "experiments/metrics/fed_rows.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

bool drafts_anything(const CaseData& data) {
  return any_step(data, [](const StepRecord& step) { return !step.drafted.empty(); });
}

std::vector<std::size_t> all_of(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

theory::ResidualIntervals chain_intervals(const CaseData& data) {
  const std::vector<PromptRounds> run = data.rounds();
  return residual_intervals(
      data, run.size(), [&](std::span<const std::size_t> drawn, const theory::Calibration& costs) {
        std::vector<PromptRounds> rounds;
        double steps = 0, tokens = 0;
        for (const std::size_t i : drawn) {
          rounds.push_back(run[i]);
          steps += static_cast<double>(run[i].size());
          for (const Round& round : run[i]) tokens += round.emitted;
        }
        if (steps == 0) return std::nan("");
        const theory::StepTimes step =
            theory::calibrated_step(costs, theory::draft_length_counts(rounds), tokens / steps);
        return theory::measured_cost_speedup(tokens / steps, step);
      });
}

theory::ResidualIntervals rows_intervals(const CaseData& data, const std::vector<FedRows>& fed,
                                         double equivalent_share) {
  return residual_intervals(
      data, fed.size(), [&](std::span<const std::size_t> drawn, const theory::Calibration& costs) {
        const theory::RowsExplainInput input = rows_input(fed, drawn, costs, equivalent_share);
        if (input.tau == 0) return std::nan("");
        return theory::measured_cost_speedup(input.tau, theory::calibrated_rows_step(input));
      });
}

std::optional<theory::Waterfall> rows_waterfall(const CaseData& data, const json& metrics,
                                                const json& sections) {
  const auto speedup = metric_number(metrics, "speedup");
  const auto calibration = calibration_of(data, data.calibration);
  if (!speedup || !calibration) return std::nullopt;
  const std::vector<FedRows> fed = fed_rows(data);
  const double rows = rows_fed_per_step(data);
  // With an early exit the draft is a chain, so every row has logits. done_share accounts for the saved work.
  const bool all_logits = calibration->done_share > 0;
  const double share = rows > 0 && !all_logits ? std::min(1.0, row_equivalents(data) / rows) : 1;
  theory::RowsExplainInput input = rows_input(fed, all_of(fed.size()), *calibration, share);
  input.speedup = *speedup;
  if (const auto predicted = theory_tau(sections, data.id())) {
    input.predicted_tau = predicted->tau;
    input.law = predicted->law;
  }
  try {
    input.drift = case_drift(data, calibration->target);
    input.intervals = rows_intervals(data, fed, share);
    return theory::explain_rows(input);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<theory::Waterfall> case_waterfall(const CaseData& data, const json& metrics,
                                                const json& sections) {
  const bool no_alpha = data.rounds().empty() || judges_whole_paths(data);
  if (feeds_probes(data) || (no_alpha && drafts_anything(data)))
    return rows_waterfall(data, metrics, sections);
  const auto alpha = metric_number(metrics, "alpha"), tau = metric_number(metrics, "tau"),
             speedup = metric_number(metrics, "speedup");
  const auto calibration = calibration_of(data, data.calibration);
  const auto c = cost_per_drafted_token(data, metrics, data.calibration);
  if (!alpha || !tau || !speedup || !calibration || !c) return std::nullopt;
  theory::ExplainInput input;
  input.alpha = *alpha;
  input.lengths = theory::draft_length_counts(data.rounds());
  input.gamma = constant_gamma(data, input.lengths);
  input.tau = *tau;
  input.speedup = *speedup;
  input.calibration = *calibration;
  input.assumed_c = *c;
  try {
    input.drift = case_drift(data, calibration->target);
    input.intervals = chain_intervals(data);
    return theory::explain(input);
  } catch (const Error&) {
    return std::nullopt;
  }
}

json waterfall_json(const theory::Waterfall& waterfall) {
  json out = json::array({{{"step", waterfall.start_name},
                           {"speedup", waterfall.predicted},
                           {"log_ratio", 0.0},
                           {"explanation", waterfall.start}}});
  for (const theory::WaterfallTerm& term : waterfall.terms) {
    out.push_back({{"step", term.key},
                   {"speedup", term.speedup},
                   {"log_ratio", term.log_ratio},
                   {"explanation", term.explanation}});
    if (term.key == "machine_drift" && waterfall.drift)
      out.back()["measured_by"] = to_string(*waterfall.drift);
  }
  out.push_back({{"step", "measured"},
                 {"speedup", waterfall.measured},
                 {"log_ratio", 0.0},
                 {"unexplained_share", waterfall.unexplained_share},
                 {"unexplained_share_ci95", interval_json(waterfall.intervals.unexplained)},
                 {"residual_share", waterfall.residual_share},
                 {"residual_share_ci95", interval_json(waterfall.intervals.residual)}});
  return out;
}

}  // namespace speclab
