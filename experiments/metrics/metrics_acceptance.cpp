// Metrics of acceptance. Four of them estimate alpha. All metrics of this file except alpha_teacher_forced
// are computed from the first repeat. The other repeats would add nothing, because they use the same coins
// and so have the same steps.
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "core/decoding/registry.h"
#include "core/decoding/rules/accept.h"
#include "core/theory/alpha_estimators.h"
#include "core/theory/reliability.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

MetricValue as_metric(const std::optional<theory::Estimate>& estimate) {
  if (!estimate) return {};
  return {estimate->value, interval_json(estimate->ci)};
}

bool has_drafts(const std::vector<PromptRounds>& run) {
  for (const PromptRounds& rounds : run) {
    for (const Round& round : rounds) {
      if (round.drafted > 0) return true;
    }
  }
  return false;
}

/// The rounds from which an alpha can be estimated; none if the rule of the case has no alpha.
std::vector<PromptRounds> rounds_of_draws(const CaseData& data) {
  return judges_whole_paths(data) ? std::vector<PromptRounds>() : data.rounds();
}

MetricValue alpha(const CaseData& data) {
  return as_metric(theory::alpha_mle(rounds_of_draws(data), data.bootstrap()));
}
MetricValue alpha_min(const CaseData& data) {
  return as_metric(theory::alpha_min(rounds_of_draws(data), data.bootstrap()));
}
MetricValue draft_utilization(const CaseData& data) {
  return as_metric(theory::draft_utilization(data.rounds(), data.bootstrap()));
}

MetricValue alpha_teacher_forced(const CaseData& data) { return mean_of_prompts(data, data.alpha_forced); }

MetricValue agreement(const CaseData& data) {
  const auto found = theory::estimators_agree(rounds_of_draws(data));
  return {found ? json(found->p_value) : json(nullptr), nullptr};
}

MetricValue acceptance_at(const CaseData& data) {
  MetricValue result{json::array(), json::array()};
  for (const theory::PositionAcceptance& position : theory::acceptance_by_position(data.rounds())) {
    result.value.push_back(position.acceptance);
    result.ci95.push_back(interval_json(position.wilson));
  }
  if (result.value.empty()) return {};
  return result;
}

MetricValue joint_at(const CaseData& data) {
  json list = json::array();
  for (const theory::PositionAcceptance& position : theory::acceptance_by_position(data.rounds()))
    list.push_back(position.joint);
  if (list.empty()) return {};
  return {list, nullptr};
}

MetricValue accepted_histogram(const CaseData& data) {
  const auto run = data.rounds();
  if (!has_drafts(run)) return {};
  return {theory::accepted_histogram(run), nullptr};
}

MetricValue drafted_per_step(const CaseData& data) {
  double drafted = 0, steps = 0;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) drafted += static_cast<double>(step.drafted.size());
    }
    steps += step_count(line);
  });
  if (steps == 0) return {};
  return {drafted / steps, nullptr};
}

/// For each source: the steps in which it drafted, and the steps in which a token of its draft was accepted.
std::map<std::string, std::pair<double, double>> steps_by_source(const CaseData& data, double* all) {
  std::map<std::string, std::pair<double, double>> out;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    *all += step_count(line);
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) {
        const auto count = [&](const std::string& source, std::size_t first, std::size_t last) {
          if (first == last) return;
          auto& [steps, hits] = out[source];
          ++steps;
          hits += std::any_of(step.drafted.begin() + static_cast<std::ptrdiff_t>(first),
                              step.drafted.begin() + static_cast<std::ptrdiff_t>(last),
                              [](const DraftedToken& token) { return token.accepted; })
                      ? 1
                      : 0;
        };
        const std::size_t drafted = step.drafted.size(), parts = step.contributions.size();
        if (parts == 0) count(step.source, 0, drafted);
        const auto begin = [&](std::size_t i) {  // first index in `drafted` of contribution i
          return i < parts ? static_cast<std::size_t>(step.contributions[i].first) - 1 : drafted;
        };
        for (std::size_t i = 0; i < parts; ++i) count(step.contributions[i].source, begin(i), begin(i + 1));
      }
    }
  });
  return out;
}

MetricValue source_share(const CaseData& data) {
  double all = 0;
  json map = json::object();
  for (const auto& [source, counts] : steps_by_source(data, &all)) map[source] = counts.first / all;
  if (map.empty()) return {};
  return {map, nullptr};
}

MetricValue hit_rate(const CaseData& data) {
  double all = 0;
  json map = json::object();
  for (const auto& [source, counts] : steps_by_source(data, &all)) map[source] = counts.second / counts.first;
  if (map.empty()) return {};
  return {map, nullptr};
}

using Three = std::array<Token, 3>;

/// Considers each triple of neighbouring tokens in a guessed block if all three tokens are wrong at their
/// place. Returns the share of these triples that occur elsewhere in the text.
MetricValue misplaced_ngrams(const CaseData& data) {
  const StrategyInfo* strategy = recorded_strategy(data.config["strategy"].get<std::string>());
  if (!strategy || !strategy->guesses_whole_blocks) return {};
  std::vector<double> elsewhere(data.prompts.size()), wrong(data.prompts.size());
  for_each_line(data, 0, [&](std::size_t prompt, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      const std::vector<Token>& text = turn.tokens;
      std::set<Three> known;
      for (std::size_t i = 0; i + 3 <= text.size(); ++i) known.insert({text[i], text[i + 1], text[i + 2]});
      std::size_t at = 1;  // index of the first drafted token
      for (const StepRecord& step : turn.steps) {
        for (std::size_t k = 0; k + 3 <= step.drafted.size() && at + k + 3 <= text.size(); ++k) {
          Three three{};
          bool all_wrong = true;
          for (std::size_t j = 0; j < 3; ++j) {
            three[j] = step.drafted[k + j].id;
            all_wrong = all_wrong && three[j] != text[at + k + j];
          }
          if (!all_wrong) continue;
          wrong[prompt] += 1;
          elsewhere[prompt] += known.contains(three) ? 1 : 0;
        }
        at += static_cast<std::size_t>(step.emitted);
      }
    }
  });
  return ratio_of_sums(data, elsewhere, wrong);
}

MetricValue r_prime(const CaseData& data) {
  const json& options = data.options();
  const bool constant = options.value("schedule", "constant") == "constant" &&
                        !options.contains("fallback") && options.value("budget", "fixed") == "fixed";
  if (data.config["draft"].is_null() || !options.contains("gamma") || !constant) return {};
  double tokens = 0, steps = 0;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    tokens += emitted_tokens(line);
    steps += step_count(line);
  });
  if (steps == 0) return {};
  return {tokens / steps / (options["gamma"].get<double>() + 1), nullptr};
}

MetricValue iid_p_value(const CaseData& data) {
  const auto test = theory::iid_position_test(rounds_of_draws(data));
  return {test ? json(test->p_value) : json(nullptr), nullptr};
}

MetricValue alpha_drift_p(const CaseData& data) {
  const auto test = theory::alpha_drift(rounds_of_draws(data));
  return {test ? json(test->chi2.p_value) : json(nullptr), nullptr};
}

/// True if a draft model or the target itself drafts. Otherwise the confidence of a token is no probability,
/// but the share of the copies found that contain the token.
bool drafts_by_model(const CaseData& data) {
  return !data.config["draft"].is_null() || drafts_on_target(data);
}

/// [prompts]: a forecast of the acceptance of each tested token, and whether the token was accepted.
/// `forecast`: the draft's confidence, or the acceptance that a controller predicted. Without forecasts if
/// the rule judges whole paths, no model drafts, or drafts branch (then later children are tested only after
/// a rejection).
std::vector<std::vector<theory::Forecast>> forecasts(const CaseData& data, float DraftedToken::* forecast) {
  std::vector<std::vector<theory::Forecast>> out(data.prompts.size());
  if (judges_whole_paths(data) || data.branches || !drafts_by_model(data)) return out;
  for_each_line(data, 0, [&](std::size_t prompt, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) {
        for (std::size_t i = 0; i < step.drafted.size(); ++i) {
          const DraftedToken& token = step.drafted[i];
          if (token.parent != static_cast<int>(i)) break;  // a step that feeds probes may branch
          if (token.tested && token.*forecast >= 0) out[prompt].push_back({token.*forecast, token.accepted});
        }
      }
    }
  });
  return out;
}

std::optional<theory::Reliability> reliability_of(const CaseData& data, float DraftedToken::* forecast) {
  std::vector<theory::Forecast> all;
  for (const std::vector<theory::Forecast>& prompt : forecasts(data, forecast))
    all.insert(all.end(), prompt.begin(), prompt.end());
  return theory::reliability(std::move(all));
}

template <float DraftedToken::* kForecast>
MetricValue forecast_ece(const CaseData& data) {
  const auto found = reliability_of(data, kForecast);
  return {found ? json(found->ece) : json(nullptr), nullptr};
}

template <float DraftedToken::* kForecast>
MetricValue forecast_brier(const CaseData& data) {
  std::vector<double> errors, tests;
  for (const std::vector<theory::Forecast>& prompt : forecasts(data, kForecast)) {
    const auto found = theory::reliability(prompt);
    tests.push_back(static_cast<double>(prompt.size()));
    errors.push_back(found ? found->brier * tests.back() : 0);
  }
  return ratio_of_sums(data, errors, tests);
}

template <float DraftedToken::* kForecast>
MetricValue forecast_bins(const CaseData& data) {
  const auto found = reliability_of(data, kForecast);
  if (!found) return {};
  json list = json::array();
  for (const theory::ReliabilityBin& bin : found->bins) list.push_back(bin.forecast);
  return {list, nullptr};
}

template <float DraftedToken::* kForecast>
MetricValue accepted_by_forecast(const CaseData& data) {
  const auto found = reliability_of(data, kForecast);
  if (!found) return {};
  MetricValue result{json::array(), json::array()};
  for (const theory::ReliabilityBin& bin : found->bins) {
    result.value.push_back(bin.share);
    result.ci95.push_back(interval_json(stats::wilson_interval(bin.share * bin.count, bin.count)));
  }
  return result;
}

MetricValue tau_over_eq1(const CaseData& data) {
  return as_metric(theory::tokens_over_eq1(rounds_of_draws(data), data.bootstrap()));
}

const std::array kAcceptanceMetrics = {
    Metric{
        "alpha", "",
        "accepted / (accepted + rejections) by the case's rule: censored maximum likelihood; null for rules "
        "over whole paths",
        estimator::kCensored, kHigh, false, alpha},
    Metric{"alpha_min", "",
           "mean expected acceptance of the case's rule at tested positions (sum min(p,q), p(x), ...)",
           estimator::kMeanOverTests, kHigh, false, alpha_min},
    Metric{"alpha_teacher_forced", "",
           "probability that the case's rule accepts one token of the draft model, mean over the positions "
           "of the autoregressive text",
           estimator::kMeanOverTokens, kHigh, false, alpha_teacher_forced},
    Metric{"alpha_agreement_p", "", "p-value of the test that alpha and alpha_min estimate the same number",
           estimator::kZTest, kNone, false, agreement},
    Metric{"draft_utilization", "", "accepted / drafted: a naive estimate of alpha, biased low",
           estimator::kRatioOfSums, kHigh, false, draft_utilization},
    Metric{"acceptance_at", "", "[i]: P(drafted token i + 1 accepted given tested); Wilson intervals",
           estimator::kProportions, kHigh, false, acceptance_at},
    Metric{"joint_at", "", "running product of acceptance_at", estimator::kProduct, kHigh, false, joint_at},
    Metric{"accepted_histogram", "steps", "[n]: steps with n accepted tokens", estimator::kCount, kNone,
           false, accepted_histogram},
    Metric{"confidence_ece", "",
           "expected calibration error of the draft's probability of its token as a forecast of acceptance: "
           "mean distance to the share accepted, over ten bins of equal numbers of tested tokens; null if "
           "drafts branch or no model drafts, and for rules over whole paths",
           estimator::kBins, kLow, false, forecast_ece<&DraftedToken::confidence>},
    Metric{"confidence_brier", "",
           "Brier score of the forecasts of confidence_ece: mean of (probability - 1 if accepted, else 0)^2",
           estimator::kMeanOverTests, kLow, false, forecast_brier<&DraftedToken::confidence>},
    Metric{"confidence_bins", "", "[i]: mean of the draft's probabilities in bin i of confidence_ece",
           estimator::kBins, kNone, false, forecast_bins<&DraftedToken::confidence>},
    Metric{"accepted_by_confidence", "",
           "[i]: share of the tokens of bin i of confidence_ece that was accepted; Wilson intervals",
           estimator::kProportions, kNone, false, accepted_by_forecast<&DraftedToken::confidence>},
    Metric{
        "predicted_ece", "",
        "expected calibration error of the acceptance that the controller of a schedule predicted, over ten "
        "bins of equal numbers of tested tokens; null without a controller, if drafts branch, and for rules "
        "over whole paths",
        estimator::kBins, kLow, false, forecast_ece<&DraftedToken::predicted>},
    Metric{"predicted_brier", "", "Brier score of the predictions of predicted_ece",
           estimator::kMeanOverTests, kLow, false, forecast_brier<&DraftedToken::predicted>},
    Metric{"predicted_bins", "", "[i]: mean of the predictions in bin i of predicted_ece", estimator::kBins,
           kNone, false, forecast_bins<&DraftedToken::predicted>},
    Metric{"accepted_by_predicted", "",
           "[i]: share of the tokens of bin i of predicted_ece that was accepted; Wilson intervals",
           estimator::kProportions, kNone, false, accepted_by_forecast<&DraftedToken::predicted>},
    Metric{"drafted_per_step", "tokens/step", "mean number of drafted tokens per step",
           estimator::kRatioOfCounts, kNone, false, drafted_per_step},
    Metric{"misplaced_ngrams", "",
           "Jacobi decoding: of the guessed token triples that are all wrong, the share that occurs "
           "elsewhere in the text",
           estimator::kRatioOfSums, kNone, false, misplaced_ngrams},
    Metric{"source_share", "", "source -> share of the steps in which it drafted", estimator::kRatioOfCounts,
           kNone, false, source_share},
    Metric{"hit_rate", "", "source -> share of its drafts with an accepted token", estimator::kRatioOfCounts,
           kHigh, false, hit_rate},
    Metric{"r_prime", "", "tau / (gamma + 1) for drafts of constant length; not the same as alpha",
           estimator::kRatioOfCounts, kHigh, false, r_prime},
    Metric{"iid_p_value", "", "p-value of the G2 test that all positions have the same alpha",
           estimator::kG2Test, kNone, false, iid_p_value},
    Metric{"alpha_drift_p", "",
           "p-value of the chi-squared test that alpha is the same in all thirds of a text, within prompts",
           estimator::kChi2Test, kNone, false, alpha_drift_p},
    Metric{"tau_over_eq1", "ratio",
           "measured tau / the tau of Leviathan et al. 2023, Eq. 1, at the measured alpha",
           estimator::kRatioOfSums, kNone, false, tau_over_eq1},
};

}  // namespace

const AcceptanceRule* recorded_rule(const CaseData& data) {
  const json name = data.config.value("rule", json());
  return name.is_string() ? recorded_acceptance_rule(name.get_ref<const std::string&>()) : nullptr;
}

bool judges_whole_paths(const CaseData& data) {
  const AcceptanceRule* rule = recorded_rule(data);
  return rule != nullptr && rule->judges_whole_paths;
}

std::span<const Metric> acceptance_metrics() { return kAcceptanceMetrics; }

}  // namespace speclab
