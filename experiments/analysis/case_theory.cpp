#include "experiments/analysis/case_theory.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/base/error.h"
#include "core/theory/alpha_estimators.h"
#include "experiments/analysis/lookahead_fit.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

std::optional<double> number(const json& metrics, const char* name) {
  const auto found = metrics.find(name);
  if (found == metrics.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

/// Whether steps feed more than what they draft (the window of lookahead decoding): costs by draft length say
/// nothing about them then.
bool feeds_probes(const CaseData& data) {
  bool probes = false;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) probes = probes || !step.probes.empty();
    }
  });
  return probes;
}

bool drafts_anything(const CaseData& data) {
  bool drafts = false;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) drafts = drafts || !step.drafted.empty();
    }
  });
  return drafts;
}

/// The calibrated step costs of a case; absent when it could not be run.
const json* step_costs(const json& table, const std::string& id) {
  if (table.is_null()) return nullptr;
  const json& cases = table.at("cases");
  const auto found = cases.find(id);
  return found == cases.end() || found->is_null() ? nullptr : &*found;
}

double linear(const json& cost, double count) {
  return cost.at("constant").get<double>() + cost.at("slope").get<double>() * count;
}

/// `table`: see calibration_costs.
std::optional<theory::Calibration> calibration_of(const CaseData& data, const json& table) {
  if (!data.reference) return std::nullopt;
  const json* own = step_costs(table, data.id());
  const json* base = step_costs(table, data.reference->id());
  if (!own || !base) return std::nullopt;
  theory::Calibration calibration;
  calibration.target = calibrated_row_times(table);  // in nanoseconds
  calibration.t_ar = calibration.target.at(1) + linear(base->at("draft_ns"), 0) +
                     linear(base->at("accept_ns"), 1) + base->at("other_ns").get<double>();
  calibration.draft_token = own->at("draft_ns").at("slope");
  calibration.draft_step = own->at("draft_ns").at("constant");
  calibration.accept_step = own->at("accept_ns").at("constant");
  calibration.accept_row = own->at("accept_ns").at("slope");
  calibration.other = own->at("other_ns");
  return calibration;
}

/// The draft length of a case that asks for the same in every step: the longest one. The end of a text cuts
/// drafts, and a model now and then drafts an end token and stops; a case in which more than 5 % of the other
/// steps draft less has lengths that vary.
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

/// Forwards of the draft model for each drafted token; tokens that were copied lower it.
std::optional<double> draft_calls_per_drafted_token(const json& metrics) {
  const auto calls = number(metrics, "draft_calls"), tokens = number(metrics, "tokens"),
             steps = number(metrics, "steps"), drafted = number(metrics, "drafted_per_step");
  if (!calls || !tokens || !steps || !drafted) return std::nullopt;
  const double drafted_tokens = *drafted * *steps;
  return drafted_tokens > 0 ? *calls * *tokens / drafted_tokens : 0.0;
}

/// c of the closed forms: time of the draft model's forwards for one drafted token over that of a target
/// forward of one row, both from the calibration, nothing else of the draft in it. 0 without a draft model.
std::optional<double> cost_per_drafted_token(const CaseData& data, const json& metrics, const json& table) {
  if (data.config["draft"].is_null()) return 0.0;
  if (table.is_null()) return std::nullopt;
  const auto found = table.at("drafts").find(data.config["draft"].get<std::string>());
  const auto calls = draft_calls_per_drafted_token(metrics);
  if (found == table.at("drafts").end() || !calls) return std::nullopt;
  return found->at("c").get<double>() * *calls;
}

/// Steps of the lines of both sides, as they are and each as much longer as the machine was slower:
/// [prompts][repeats].
struct DriftedSteps {
  PairedTimes plain, slowed;
  theory::DriftSource source = theory::DriftSource::lines;

  /// The factor that drift puts on the speedup of these prompts; as the speedup itself a median over repeats.
  double factor(std::span<const std::size_t> prompts) const {
    const auto ratio = [&](const PairedTimes& steps) {
      stats::Times base, test;
      for (const std::size_t i : prompts) base.push_back(steps.base[i]), test.push_back(steps.test[i]);
      return stats::paired_ratio(base, test, {.resamples = 1}).value;
    };
    return ratio(slowed) / ratio(plain);
  }
};

std::optional<DriftedSteps> drifted_steps(const CaseData& data, const theory::RowTimes& target) {
  if (!data.drift || !data.drift->known()) return std::nullopt;
  bool known = true, in_lines = false, in_rounds = false;
  const auto steps = [](const LineRecord& line) { return std::max(1.0, step_count(line)); };
  const auto slowed = [&](const LineRecord& line) {
    const std::optional<double> factor = data.drift->during(line, target);
    known = known && factor;
    (line.drift.empty() ? in_rounds : in_lines) = true;
    return steps(line) * factor.value_or(1);
  };
  DriftedSteps drifted{paired_values(*data.reference, data, steps),
                       paired_values(*data.reference, data, slowed)};
  if (!known || drifted.plain.test.empty()) return std::nullopt;
  drifted.source = in_lines && in_rounds ? theory::DriftSource::both
                   : in_lines            ? theory::DriftSource::lines
                                         : theory::DriftSource::rounds;
  return drifted;
}

std::vector<std::size_t> all_of(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

std::optional<theory::Drift> drift_of(const CaseData& data, const theory::RowTimes& target) {
  const auto drifted = drifted_steps(data, target);
  if (!drifted) return std::nullopt;
  return theory::Drift{drifted->factor(all_of(drifted->plain.test.size())), drifted->source};
}

/// The speedup over the prompts with these numbers; NaN where they have none.
double speedup_of(const PairedDecoding& both, std::span<const std::size_t> drawn) {
  stats::Decoded base, test;
  for (const std::size_t i : drawn) {
    base.seconds.push_back(both.base.seconds[i]), base.tokens.push_back(both.base.tokens[i]);
    test.seconds.push_back(both.test.seconds[i]), test.tokens.push_back(both.test.tokens[i]);
  }
  const auto ratio = stats::paired_speedup(base, test, {.resamples = 1});
  return ratio ? ratio->value : std::nan("");
}

/// How far noise alone could move what is unexplained: prompts and calibration rounds are both drawn anew,
/// the tokens and the draft lengths of the drawn prompts with them. `modelled`: speedup over the drawn
/// prompts with such costs, NaN where there is none.
using Modelled =
    std::function<double(std::span<const std::size_t> drawn, const theory::Calibration& calibration)>;
theory::ResidualIntervals residual_intervals(const CaseData& data, std::size_t prompts,
                                             const Modelled& modelled) {
  const PairedDecoding both = paired_decoding(*data.reference, data, false);
  theory::ResidualIntervals out;
  if (!data.intervals || prompts != both.test.seconds.size() || !data.resampled_calibrations ||
      data.resampled_calibrations->empty()) {
    return out;
  }
  const auto interval = [&](bool with_drift) {
    std::size_t next = 0;
    const auto share = [&](std::span<const std::size_t> drawn) {
      const auto calibration = calibration_of(data, (*data.resampled_calibrations)[next++]);
      if (!calibration) return std::nan("");
      const auto drifted = with_drift ? drifted_steps(data, calibration->target) : std::nullopt;
      return 1 - speedup_of(both, drawn) /
                     (modelled(drawn, *calibration) * (drifted ? drifted->factor(drawn) : 1));
    };
    return stats::bootstrap_interval(prompts, share,
                                     {.resamples = static_cast<int>(data.resampled_calibrations->size())});
  };
  out.prompts = prompts;
  out.unexplained = interval(false);
  out.residual = data.drift && data.drift->known() ? interval(true) : out.unexplained;
  return out;
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

/// What the steps of one prompt fed.
struct FedRows {
  theory::DraftLengths window, rows;  ///< steps by rows besides candidates, and by all rows
  double steps = 0, tokens = 0, drafted = 0;
};

void count(theory::DraftLengths& counts, int rows) {
  if (static_cast<int>(counts.size()) <= rows) counts.resize(static_cast<std::size_t>(rows) + 1);
  ++counts[static_cast<std::size_t>(rows)];
}

std::vector<FedRows> fed_rows(const CaseData& data) {
  std::vector<FedRows> out(data.prompts.size());
  for_each_line(data, 0, [&](std::size_t prompt, const LineRecord& line) {
    FedRows& fed = out[prompt];
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) {
        const auto drafted = static_cast<int>(step.drafted.size());
        count(fed.window, std::max(1, step.rows - drafted));
        count(fed.rows, step.rows);
        fed.steps += 1, fed.tokens += step.emitted, fed.drafted += drafted;
      }
    }
  });
  return out;
}

void add(theory::DraftLengths& sum, const theory::DraftLengths& counts) {
  if (sum.size() < counts.size()) sum.resize(counts.size());
  for (std::size_t n = 0; n < counts.size(); ++n) sum[n] += counts[n];
}

/// Of the prompts with these numbers, tau among it.
theory::RowsExplainInput rows_input(const std::vector<FedRows>& fed, std::span<const std::size_t> prompts,
                                    const theory::Calibration& calibration, double equivalent_share) {
  theory::RowsExplainInput input;
  double steps = 0, tokens = 0, drafted = 0;
  for (const std::size_t i : prompts) {
    add(input.window_rows, fed[i].window);
    add(input.rows, fed[i].rows);
    steps += fed[i].steps, tokens += fed[i].tokens, drafted += fed[i].drafted;
  }
  input.tau = steps > 0 ? tokens / steps : 0;
  input.drafted = steps > 0 ? drafted / steps : 0;
  input.calibration = calibration;
  input.equivalent_share = equivalent_share;
  return input;
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

std::optional<theory::Waterfall> rows_waterfall(const CaseData& data, const json& metrics, const json& fits) {
  const auto speedup = number(metrics, "speedup");
  const auto calibration = calibration_of(data, data.calibration);
  if (!speedup || !calibration) return std::nullopt;
  const std::vector<FedRows> fed = fed_rows(data);
  const double rows = rows_fed_per_step(data);
  const double share = rows > 0 ? std::min(1.0, row_equivalents(data) / rows) : 1;
  theory::RowsExplainInput input = rows_input(fed, all_of(fed.size()), *calibration, share);
  input.speedup = *speedup;
  const json predictions = lookahead_prediction(fits, data.id(), input.tau);
  for (const auto& [name, prediction] : predictions.items()) {
    input.predicted_tau = prediction["value"];
    input.law = "Eq. 7 of Fu et al. 2024, " + prediction["assumptions"].get<std::string>();
  }
  try {
    input.drift = drift_of(data, calibration->target);
    input.intervals = rows_intervals(data, fed, share);
    return theory::explain_rows(input);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<theory::PredictionInputs> prediction_inputs(const CaseData& data, const json& metrics) {
  const std::vector<PromptRounds> run = data.rounds();
  const auto alpha = number(metrics, "alpha");
  if (run.empty() || !alpha || feeds_probes(data)) return std::nullopt;
  const theory::DraftLengths lengths = theory::draft_length_counts(run);
  theory::PredictionInputs inputs;
  inputs.alpha = alpha;
  inputs.gamma = constant_gamma(data, lengths);
  if (!inputs.gamma) inputs.lengths = lengths;
  inputs.tau = number(metrics, "tau");
  inputs.speedup = number(metrics, "speedup");
  inputs.c_hat = number(metrics, "c_hat");
  if (data.config["draft"].is_null()) inputs.c_hat = 0.0;
  if (inputs.gamma && metrics.at("acceptance_at").is_array() &&
      static_cast<int>(metrics["acceptance_at"].size()) == *inputs.gamma) {
    inputs.acceptance = metrics["acceptance_at"].get<std::vector<double>>();
  }
  inputs.c = cost_per_drafted_token(data, metrics, data.calibration);
  if (inputs.c && data.intervals && data.resampled_calibrations) {
    for (const json& table : *data.resampled_calibrations) {
      if (const auto c = cost_per_drafted_token(data, metrics, table))
        inputs.resampled.push_back({*c, calibrated_row_times(table)});
    }
  }
  if (const auto calibration = calibration_of(data, data.calibration)) {
    inputs.target =
        calibration->target.monotone();  // what the formulas choose by; costs of a step are as measured
    if (inputs.tau) inputs.times = theory::calibrated_step(*calibration, lengths, *inputs.tau);
  }
  return inputs;
}

json case_predictions(const CaseData& data, const json& metrics) {
  const auto inputs = prediction_inputs(data, metrics);
  if (!inputs) return json::object();
  json out = json::object();
  try {
    for (const theory::Prediction& prediction : theory::predictions(*inputs)) {
      using Kind = theory::PredictionKind;
      json measured = nullptr, error = nullptr;
      const auto value = number(metrics, prediction.quantity.c_str());
      if (value && prediction.kind != Kind::optimum) {
        measured = *value;
        if (*value != 0 && prediction.kind == Kind::prediction) error = prediction.value / *value - 1;
      }
      out[prediction.name] = {
          {"value", std::isfinite(prediction.value) ? json(prediction.value) : json(nullptr)},
          {"kind", to_string(prediction.kind)},
          {"measured", measured},
          {"error", error},
          {"quantity", prediction.quantity},
          {"equation", prediction.equation},
          {"assumptions", prediction.assumptions}};
      if (prediction.ci) out[prediction.name]["value_ci95"] = interval_json(prediction.ci);
    }
  } catch (const Error&) {
    return json::object();  // measured values outside the domain of the formulas (tau below 1 after cuts,
                            // say)
  }
  return out;
}

std::optional<theory::Waterfall> case_waterfall(const CaseData& data, const json& metrics, const json& fits) {
  if (feeds_probes(data) || (data.rounds().empty() && drafts_anything(data)))
    return rows_waterfall(data, metrics, fits);
  const auto alpha = number(metrics, "alpha"), tau = number(metrics, "tau"),
             speedup = number(metrics, "speedup");
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
    input.drift = drift_of(data, calibration->target);
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
