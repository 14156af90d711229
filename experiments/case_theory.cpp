#include "experiments/case_theory.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/theory/alpha_estimators.h"
#include "experiments/lookahead_fit.h"
#include "experiments/metrics_detail.h"

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

/// The draft length of a case that always asks for the same: the longest one, and the most frequent, because
/// only the ends of texts cut it shorter.
std::optional<int> constant_gamma(const theory::DraftLengths& lengths) {
  double sum = 0;
  for (const double weight : lengths) sum += weight;
  if (lengths.size() < 2 || lengths.back() < .5 * sum) return std::nullopt;
  return static_cast<int>(lengths.size()) - 1;
}

/// c of the closed forms: forwards of the draft alone for one drafted token, against a target forward, both
/// from the calibration. 0 without a draft model; tokens that were copied lower the number of forwards per
/// token.
std::optional<double> cost_per_drafted_token(const CaseData& data, const json& metrics) {
  if (data.config["draft"].is_null()) return 0.0;
  const auto c = number(metrics, "c"), calls = number(metrics, "draft_calls"),
             tokens = number(metrics, "tokens"), steps = number(metrics, "steps"),
             drafted = number(metrics, "drafted_per_step");
  if (!c || !calls || !tokens || !steps || !drafted) return std::nullopt;
  const double drafted_tokens = *drafted * *steps;
  return drafted_tokens > 0 ? *c * *calls * *tokens / drafted_tokens : 0.0;
}

/// Steps of the lines of both sides, as they are and each as much longer as the machine was slower: [prompts][repeats].
struct DriftedSteps {
  PairedTimes plain, slowed;

  /// The factor that drift puts on the speedup of these prompts; as the speedup itself a median over repeats.
  double factor(std::span<const std::size_t> prompts) const {
    const auto speedup = [&](const PairedTimes& steps) {
      stats::Times base, test;
      for (const std::size_t i : prompts) base.push_back(steps.base[i]), test.push_back(steps.test[i]);
      return stats::paired_speedup(base, test, {.resamples = 1}).value;
    };
    return speedup(slowed) / speedup(plain);
  }
};

std::optional<DriftedSteps> drifted_steps(const CaseData& data, const theory::RowTimes& target) {
  if (!data.drift || !data.drift->known()) return std::nullopt;
  bool known = true;
  const auto steps = [](const LineRecord& line) { return std::max(1.0, step_count(line)); };
  const auto slowed = [&](const LineRecord& line) {
    const std::optional<double> factor = data.drift->during(line, target);
    known = known && factor;
    return steps(line) * factor.value_or(1);
  };
  DriftedSteps drifted{paired_values(*data.reference, data, steps), paired_values(*data.reference, data, slowed)};
  if (!known || drifted.plain.test.empty()) return std::nullopt;
  return drifted;
}

std::vector<std::size_t> all_of(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

std::optional<double> drift_factor(const CaseData& data, const theory::RowTimes& target) {
  const auto drifted = drifted_steps(data, target);
  if (!drifted) return std::nullopt;
  return drifted->factor(all_of(drifted->plain.test.size()));
}

/// How far noise alone could move the residual: prompts and calibration rounds are both drawn anew, the
/// tokens and the draft lengths of the drawn prompts with them.
std::optional<stats::Interval> residual_interval(const CaseData& data) {
  const std::vector<PromptRounds> run = data.rounds();
  const PairedTimes times = paired_times(*data.reference, data, false);
  if (!data.intervals || run.size() != times.test.size() || !data.resampled_calibrations) return std::nullopt;
  std::size_t next = 0;
  const auto residual = [&](std::span<const std::size_t> drawn) {
    const auto calibration = calibration_of(data, (*data.resampled_calibrations)[next++]);
    if (!calibration) return std::nan("");
    const auto drifted = drifted_steps(data, calibration->target);
    std::vector<PromptRounds> rounds;
    stats::Times base, test;
    double steps = 0, tokens = 0;
    for (const std::size_t i : drawn) {
      rounds.push_back(run[i]);
      base.push_back(times.base[i]);
      test.push_back(times.test[i]);
      steps += static_cast<double>(run[i].size());
      for (const Round& round : run[i]) tokens += round.emitted;
    }
    const theory::DraftLengths lengths = theory::draft_length_counts(rounds);
    const theory::StepTimes step = theory::calibrated_step(*calibration, lengths, tokens / steps);
    const double speedup = stats::paired_speedup(base, test, {.resamples = 1}).value;
    return 1 - speedup / (theory::measured_cost_speedup(tokens / steps, step) * (drifted ? drifted->factor(drawn) : 1));
  };
  const int resamples = static_cast<int>(data.resampled_calibrations->size());
  if (resamples == 0) return std::nullopt;
  return stats::bootstrap_interval(run.size(), residual, {.resamples = resamples});
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

/// As residual_interval.
std::optional<stats::Interval> rows_residual_interval(const CaseData& data, const std::vector<FedRows>& fed,
                                                      double equivalent_share) {
  const PairedTimes times = paired_times(*data.reference, data, false);
  if (!data.intervals || fed.size() != times.test.size() || !data.resampled_calibrations ||
      data.resampled_calibrations->empty()) {
    return std::nullopt;
  }
  std::size_t next = 0;
  const auto residual = [&](std::span<const std::size_t> drawn) {
    const auto calibration = calibration_of(data, (*data.resampled_calibrations)[next++]);
    if (!calibration) return std::nan("");
    const auto drifted = drifted_steps(data, calibration->target);
    const theory::RowsExplainInput input = rows_input(fed, drawn, *calibration, equivalent_share);
    stats::Times base, test;
    for (const std::size_t i : drawn) base.push_back(times.base[i]), test.push_back(times.test[i]);
    const double speedup = stats::paired_speedup(base, test, {.resamples = 1}).value;
    return 1 - speedup / (theory::measured_cost_speedup(input.tau, theory::calibrated_rows_step(input)) *
                          (drifted ? drifted->factor(drawn) : 1));
  };
  return stats::bootstrap_interval(fed.size(), residual,
                                   {.resamples = static_cast<int>(data.resampled_calibrations->size())});
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
    input.machine_drift = drift_factor(data, calibration->target);
    input.residual_ci95 = rows_residual_interval(data, fed, share);
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
  inputs.gamma = constant_gamma(lengths);
  if (!inputs.gamma) inputs.lengths = lengths;
  inputs.tau = number(metrics, "tau");
  inputs.speedup = number(metrics, "speedup");
  inputs.c_hat = number(metrics, "c_hat");
  if (data.config["draft"].is_null()) inputs.c_hat = 0.0;
  if (inputs.gamma && metrics.at("acceptance_at").is_array() &&
      static_cast<int>(metrics["acceptance_at"].size()) == *inputs.gamma) {
    inputs.acceptance = metrics["acceptance_at"].get<std::vector<double>>();
  }
  inputs.c = cost_per_drafted_token(data, metrics);
  if (const auto calibration = calibration_of(data, data.calibration)) {
    inputs.target = calibration->target;
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
      json measured = nullptr, error = nullptr;
      if (const auto value = number(metrics, prediction.quantity.c_str())) {
        measured = *value;
        if (*value != 0) error = prediction.value / *value - 1;
      }
      out[prediction.name] = {
          {"value", std::isfinite(prediction.value) ? json(prediction.value) : json(nullptr)},
          {"measured", measured},
          {"error", error},
          {"quantity", prediction.quantity},
          {"equation", prediction.equation},
          {"assumptions", prediction.assumptions}};
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
  const auto c = cost_per_drafted_token(data, metrics);
  if (!alpha || !tau || !speedup || !calibration || !c) return std::nullopt;
  theory::ExplainInput input;
  input.alpha = *alpha;
  input.lengths = theory::draft_length_counts(data.rounds());
  input.tau = *tau;
  input.speedup = *speedup;
  input.calibration = *calibration;
  input.assumed_c = *c;
  try {
    input.machine_drift = drift_factor(data, calibration->target);
    input.residual_ci95 = residual_interval(data);
    return theory::explain(input);
  } catch (const Error&) {
    return std::nullopt;
  }
}

json waterfall_json(const theory::Waterfall& waterfall) {
  static const std::map<std::string, std::string> names = {
      {"i.i.d. assumption", "iid"},
      {"draft cost", "draft_cost"},
      {"verification width", "verification_width"},
      {"sampling and bookkeeping", "sampling_and_bookkeeping"},
      {"law", "law"},
      {"window rows", "window_rows"},
      {"drafted rows", "drafted_rows"},
      {"rows without logits", "rows_without_logits"},
      {"machine drift", "machine_drift"},
      {"residual", "residual"}};
  json out = json::array({{{"step", waterfall.start_name},
                           {"speedup", waterfall.predicted},
                           {"log_ratio", 0.0},
                           {"explanation", waterfall.start}}});
  for (const theory::WaterfallTerm& term : waterfall.terms) {
    const auto name = names.find(term.name);
    out.push_back({{"step", name == names.end() ? term.name : name->second},
                   {"speedup", term.speedup},
                   {"log_ratio", term.log_ratio},
                   {"explanation", term.explanation}});
  }
  out.push_back({{"step", "measured"},
                 {"speedup", waterfall.measured},
                 {"log_ratio", 0.0},
                 {"residual_share", waterfall.residual_share},
                 {"residual_share_ci95", interval_json(waterfall.residual_ci95)}});
  return out;
}

}  // namespace speclab
