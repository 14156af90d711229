#include "experiments/analysis/case_waterfall.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/theory/alpha_estimators.h"
#include "core/theory/explained/resampled_values.h"
#include "core/theory/explained/sensitivity.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/case_noise.h"
#include "experiments/analysis/case_theory.h"
#include "experiments/analysis/strategy_theory.h"
#include "experiments/analysis/trees/tree_acceptance.h"
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

/// The waterfalls and what-ifs of the resamples of a case.
struct Resamples {
  theory::ResampledWaterfalls waterfalls;
  theory::ResampledValues what_ifs;

  void add(const CaseExplanation& explanation) {
    waterfalls.add(explanation.waterfall);
    std::map<std::string, double> values;
    for (const theory::Prediction& one : explanation.sensitivity) values[one.name] = one.value;
    what_ifs.add(values);
  }
  void add_undefined() {
    waterfalls.add_undefined();
    what_ifs.add_undefined();
  }
};

/// Makes the explanation of the drawn prompts. It returns nothing, or throws Error, when these prompts have
/// no tokens, no tests, or numbers outside the domain of the formulas.
using Explain = std::function<std::optional<CaseExplanation>(const CaseResample&)>;

Resamples resample(const CaseData& data, std::size_t prompts, const Explain& explain) {
  Resamples out;
  for_each_resample(data, prompts, [&](const CaseResample* one) {
    std::optional<CaseExplanation> explanation;
    try {
      if (one) explanation = explain(*one);
    } catch (const Error&) {
      explanation.reset();
    }
    if (explanation) out.add(*explanation);
    else out.add_undefined();
  });
  return out;
}

std::vector<theory::Prediction> with_intervals(std::vector<theory::Prediction> what_ifs,
                                               const theory::ResampledValues& resampled) {
  for (theory::Prediction& one : what_ifs) one.ci = resampled.interval(one.name);
  return what_ifs;
}

theory::SensitivityInput sensitivity_input(double tau, const theory::StepTimes& step,
                                           const theory::Calibration& costs,
                                           std::optional<theory::TokenGain> gain) {
  return {.tau = tau,
          .step = step,
          .one_row = costs.target.at(1),
          .accept_row = costs.accept_row,
          .gain = std::move(gain)};
}

/// What the steps of one prompt, or of several, drafted and accepted. All drafts are chains.
struct ChainCounts {
  theory::DraftLengths lengths;
  double steps = 0, tokens = 0, accepted = 0, tests = 0;

  explicit ChainCounts(const PromptRounds& rounds)
      : lengths(theory::draft_length_counts(std::span(&rounds, 1))),
        steps(static_cast<double>(rounds.size())) {
    for (const Round& round : rounds)
      tokens += round.emitted, accepted += round.accepted, tests += round.tests();
  }
  ChainCounts(const std::vector<ChainCounts>& prompts, std::span<const std::size_t> drawn) {
    for (const std::size_t i : drawn) {
      const ChainCounts& one = prompts[i];
      lengths.resize(std::max(lengths.size(), one.lengths.size()));
      for (std::size_t g = 0; g < one.lengths.size(); ++g) lengths[g] += one.lengths[g];
      steps += one.steps, tokens += one.tokens, accepted += one.accepted, tests += one.tests;
    }
  }
};

CaseExplanation explained(const theory::ExplainInput& input) {
  return {.waterfall = theory::explain(input),
          .sensitivity = theory::sensitivity(sensitivity_input(
              input.tau, theory::calibrated_step(input.calibration, input.lengths, input.tau),
              input.calibration, theory::chain_gain(input.alpha, input.lengths)))};
}

std::optional<CaseExplanation> explain_chains(const CaseData& data, const json& metrics) {
  const auto alpha = metric_number(metrics, "alpha"), tau = metric_number(metrics, "tau"),
             speedup = metric_number(metrics, "speedup");
  const auto calibration = calibration_of(data, data.calibration);
  const auto c = cost_per_drafted_token(data, metrics, data.calibration);
  if (!alpha || !tau || !speedup || !calibration || !c) return std::nullopt;
  const std::vector<PromptRounds> run = data.rounds();
  theory::ExplainInput input;
  input.alpha = *alpha;
  input.lengths = theory::draft_length_counts(run);
  input.gamma = constant_gamma(data, input.lengths);
  input.tau = *tau;
  input.speedup = *speedup;
  input.calibration = *calibration;
  input.assumed_c = *c;
  try {
    input.drift = case_drift(data, calibration->target);
    const std::vector<ChainCounts> prompts(run.begin(), run.end());
    const Resamples resamples =
        resample(data, prompts.size(), [&](const CaseResample& one) -> std::optional<CaseExplanation> {
          const ChainCounts drawn(prompts, one.prompts);
          const auto cost = cost_per_drafted_token(data, metrics, one.table);
          if (drawn.tests == 0 || !cost) return std::nullopt;
          theory::ExplainInput again;
          again.alpha = drawn.accepted / drawn.tests;
          again.lengths = drawn.lengths;
          again.gamma = input.gamma;
          again.tau = drawn.tokens / drawn.steps;
          again.speedup = one.speedup;
          again.calibration = one.calibration;
          again.assumed_c = *cost;
          again.drift = one.drift;
          return explained(again);
        });
    input.intervals = resamples.waterfalls.intervals(prompts.size());
    CaseExplanation out = explained(input);
    out.sensitivity = with_intervals(std::move(out.sensitivity), resamples.what_ifs);
    return out;
  } catch (const Error&) {
    return std::nullopt;  // a measured value is outside the domain of the formulas
  }
}

/// How the tokens per step grow with the acceptance of a child, by depth and rank. Absent if no drafted token
/// was tested.
std::optional<theory::TokenGain> rows_gain(const CaseData& data) {
  const RankCounts counts = rank_counts(data);
  if (counts.empty()) return std::nullopt;
  std::vector<theory::RankedTree> trees;
  for_each_step(data, [&](std::size_t, const StepRecord& step) { trees.push_back(ranked_tree(step)); });
  return theory::tree_gain(trees, counts.by_depth());
}

CaseExplanation explained(const theory::RowsExplainInput& input,
                          const std::optional<theory::TokenGain>& gain) {
  return {.waterfall = theory::explain_rows(input),
          .sensitivity = theory::sensitivity(
              sensitivity_input(input.tau, theory::calibrated_rows_step(input), input.calibration, gain))};
}

std::optional<CaseExplanation> explain_trees(const CaseData& data, const json& metrics,
                                             const json& sections) {
  const auto speedup = metric_number(metrics, "speedup");
  const auto calibration = calibration_of(data, data.calibration);
  if (!speedup || !calibration) return std::nullopt;
  const std::vector<FedRows> fed = fed_rows(data);
  const double rows = rows_fed_per_step(data);
  // With an early exit the draft is a chain, so every row has logits. done_share accounts for the saved work.
  const bool all_logits = calibration->done_share > 0;
  const double share = rows > 0 && !all_logits ? std::min(1.0, row_equivalents(data) / rows) : 1;
  const auto predicted = theory_tau(sections, data.id());
  const auto input_of = [&](std::span<const std::size_t> prompts, const theory::Calibration& costs) {
    theory::RowsExplainInput input = rows_input(fed, prompts, costs, share);
    if (predicted) input.predicted_tau = predicted->tau, input.law = predicted->law;
    return input;
  };
  theory::RowsExplainInput input = input_of(all_of(fed.size()), *calibration);
  input.speedup = *speedup;
  try {
    input.drift = case_drift(data, calibration->target);
    const auto gain = rows_gain(data);
    const Resamples resamples =
        resample(data, fed.size(), [&](const CaseResample& one) -> std::optional<CaseExplanation> {
          theory::RowsExplainInput again = input_of(one.prompts, one.calibration);
          if (again.tau == 0) return std::nullopt;
          again.speedup = one.speedup;
          again.drift = one.drift;
          return explained(again, gain);
        });
    input.intervals = resamples.waterfalls.intervals(fed.size());
    CaseExplanation out = explained(input, gain);
    out.sensitivity = with_intervals(std::move(out.sensitivity), resamples.what_ifs);
    return out;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<CaseExplanation> explain_case(const CaseData& data, const json& metrics, const json& sections) {
  const bool no_alpha = data.rounds().empty() || judges_whole_paths(data);
  if (feeds_further_rows(data) || (no_alpha && drafts_anything(data)))
    return explain_trees(data, metrics, sections);
  return explain_chains(data, metrics);
}

json waterfall_json(const theory::Waterfall& waterfall) {
  json out = json::array({{{"step", waterfall.start_name},
                           {"speedup", waterfall.predicted},
                           {"speedup_ci95", interval_json(waterfall.intervals.predicted)},
                           {"log_ratio", 0.0},
                           {"explanation", waterfall.start}}});
  for (const theory::WaterfallTerm& term : waterfall.terms) {
    out.push_back({{"step", term.key},
                   {"speedup", term.speedup},
                   {"log_ratio", term.log_ratio},
                   {"log_ratio_ci95", interval_json(term.ci)},
                   {"explanation", term.explanation}});
    if (term.key == "machine_drift" && waterfall.drift)
      out.back()["measured_by"] = to_string(*waterfall.drift);
  }
  out.push_back({{"step", "measured"},
                 {"speedup", waterfall.measured},
                 {"speedup_ci95", interval_json(waterfall.intervals.measured)},
                 {"log_ratio", 0.0},
                 {"unexplained_share", waterfall.unexplained_share},
                 {"unexplained_share_ci95", interval_json(waterfall.intervals.unexplained)},
                 {"residual_share", waterfall.residual_share},
                 {"residual_share_ci95", interval_json(waterfall.intervals.residual)}});
  return out;
}

json sensitivity_json(const CaseExplanation& explanation, const json& metrics) {
  json out = json::object();
  double own = 0;
  for (const theory::Prediction& one : explanation.sensitivity) {
    json& entry = out[one.name] = prediction_json(one, metrics);
    if (one.kind == theory::PredictionKind::what_if) entry["change"] = one.value / own - 1;
    else own = one.value;
  }
  return out;
}

void add_what_ifs(json& predictions, const CaseExplanation& explanation, const json& metrics) {
  const json all = sensitivity_json(explanation, metrics);
  for (const auto& [name, entry] : all.items()) {
    json added = entry;
    if (added["kind"] == "prediction") added.erase("value_ci95");
    predictions.emplace(name, std::move(added));
  }
}

}  // namespace speclab
