#include "experiments/analysis/case_theory.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <string>

#include "core/base/error.h"
#include "core/theory/alpha_estimators.h"
#include "experiments/analysis/cascade_theory.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/overlap_theory.h"
#include "experiments/analysis/toy_theory.h"
#include "experiments/analysis/trees/tree_acceptance.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {

using nlohmann::json;

std::optional<theory::PredictionInputs> prediction_inputs(const CaseData& data, const json& metrics) {
  const std::vector<PromptRounds> run = data.rounds();
  const auto alpha = metric_number(metrics, "alpha");
  if (run.empty() || feeds_probes(data)) return std::nullopt;
  const theory::DraftLengths lengths = theory::draft_length_counts(run);
  // Without alpha there are inputs only if the rule judges whole paths and something was drafted.
  if (!alpha && (!judges_whole_paths(data) || lengths.size() < 2)) return std::nullopt;
  theory::PredictionInputs inputs;
  inputs.alpha = alpha;
  inputs.gamma = constant_gamma(data, lengths);
  if (!inputs.gamma) inputs.lengths = lengths;
  inputs.tau = metric_number(metrics, "tau");
  inputs.speedup = metric_number(metrics, "speedup");
  inputs.c_hat = metric_number(metrics, "c_hat");
  if (data.config["draft"].is_null() && !inputs.c_hat) inputs.c_hat = 0.0;
  if (inputs.gamma && metrics.at("acceptance_at").is_array() &&
      static_cast<int>(metrics["acceptance_at"].size()) == *inputs.gamma) {
    inputs.acceptance = metrics["acceptance_at"].get<std::vector<double>>();
  }
  inputs.c = cost_per_drafted_token(data, metrics, data.calibration);
  const double done = share_done_by_drafting(data);
  if (inputs.c && data.intervals && data.resampled_calibrations) {
    for (const json& table : *data.resampled_calibrations) {
      if (const auto c = cost_per_drafted_token(data, metrics, table))
        inputs.resampled.push_back({*c, calibrated_row_times(table).after_drafting(done)});
    }
  }
  if (const auto calibration = calibration_of(data, data.calibration)) {
    // The formulas that choose a setting need a t(n) that never falls. The costs of a step stay as measured.
    inputs.target = calibration->target.monotone().after_drafting(done);
    if (inputs.tau) inputs.times = theory::calibrated_step(*calibration, lengths, *inputs.tau);
  }
  // The formulas with c add the times of both models, but drafting ahead overlaps them (see
  // overlap_theory.h). They also take t(gamma + 1) as the time of the target's forward, which is false with
  // further rows.
  const bool further_rows = feeds_further_rows(data);
  if (drafts_ahead(data) || further_rows) {
    inputs.c.reset();
    inputs.c_hat.reset();
    inputs.target.reset();
    inputs.resampled.clear();
  }
  if (further_rows) inputs.times.reset();
  return inputs;
}

json prediction_json(const theory::Prediction& prediction, const json& metrics) {
  using Kind = theory::PredictionKind;
  json measured = nullptr, error = nullptr;
  const auto value = metric_number(metrics, prediction.quantity.c_str());
  if (value && prediction.kind != Kind::optimum && prediction.kind != Kind::what_if) {
    measured = *value;
    if (*value != 0 && prediction.kind == Kind::prediction) error = prediction.value / *value - 1;
  }
  json out = {{"value", std::isfinite(prediction.value) ? json(prediction.value) : json(nullptr)},
              {"kind", to_string(prediction.kind)},
              {"measured", measured},
              {"error", error},
              {"quantity", prediction.quantity},
              {"equation", prediction.equation},
              {"assumptions", prediction.assumptions}};
  if (prediction.ci) out["value_ci95"] = interval_json(prediction.ci);
  return out;
}

json case_predictions(const CaseData& data, const json& metrics) {
  json out = json::object();
  try {
    if (const auto inputs = prediction_inputs(data, metrics)) {
      const double done = share_done_by_drafting(data);
      for (theory::Prediction& prediction : theory::predictions(*inputs)) {
        if (!inputs->alpha && prediction.quantity == "alpha") continue;
        const bool verifies =
            prediction.equation.find("t(") != std::string::npos || prediction.name == "measured_costs";
        if (done > 0 && verifies)
          prediction.assumptions += fmt::format(
              "; for all rows except one, drafting had already done {:.1f} % of the forward", 100 * done);
        out[prediction.name] = prediction_json(prediction, metrics);
      }
    }
    for (const theory::Prediction& prediction : tree_predictions(data))
      out[prediction.name] = prediction_json(prediction, metrics);
    for (const theory::Prediction& prediction : matrix_predictions(data))
      out[prediction.name] = prediction_json(prediction, metrics);
    for (const theory::Prediction& prediction : toy_predictions(data))
      out[prediction.name] = prediction_json(prediction, metrics);
    for (const theory::Prediction& prediction : overlap_predictions(data, metrics))
      out[prediction.name] = prediction_json(prediction, metrics);
  } catch (const Error&) {
    return json::object();  // a measured value is outside the domain of the formulas, such as tau below 1
  }
  return out;
}

}  // namespace speclab
