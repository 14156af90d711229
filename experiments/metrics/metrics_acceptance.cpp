// Metrics of acceptance. Four of them estimate alpha. All metrics of this file are computed from the first
// repeat. The other repeats would add nothing, because they use the same coins and so have the same steps.
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "core/decoding/registry.h"
#include "core/theory/alpha_estimators.h"
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

MetricValue alpha(const CaseData& data) {
  return as_metric(theory::alpha_mle(data.rounds(), data.bootstrap()));
}
MetricValue alpha_min(const CaseData& data) {
  return as_metric(theory::alpha_min(data.rounds(), data.bootstrap()));
}
MetricValue draft_utilization(const CaseData& data) {
  return as_metric(theory::draft_utilization(data.rounds(), data.bootstrap()));
}

MetricValue alpha_teacher_forced(const CaseData& data) { return mean_of_prompts(data, data.alpha_forced); }

MetricValue agreement(const CaseData& data) {
  const auto found = theory::estimators_agree(data.rounds());
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
  const auto test = theory::iid_position_test(data.rounds());
  return {test ? json(test->p_value) : json(nullptr), nullptr};
}

MetricValue tau_over_eq1(const CaseData& data) {
  return as_metric(theory::tokens_over_eq1(data.rounds(), data.bootstrap()));
}

const std::array kAcceptanceMetrics = {
    Metric{"alpha", "", "accepted / (accepted + rejections) by the case's rule: censored maximum likelihood",
           kHigh, false, alpha},
    Metric{"alpha_min", "",
           "mean expected acceptance of the case's rule at tested positions (sum min(p,q), p(x), ...)", kHigh,
           false, alpha_min},
    Metric{"alpha_teacher_forced", "",
           "mean expected acceptance of one draw by the case's rule over the autoregressive text; draft "
           "models only",
           kHigh, false, alpha_teacher_forced},
    Metric{"alpha_agreement_p", "", "p-value of the test that alpha and alpha_min estimate the same number",
           kNone, false, agreement},
    Metric{"draft_utilization", "", "accepted / drafted: a naive estimate of alpha, biased low", kHigh, false,
           draft_utilization},
    Metric{"acceptance_at", "", "[i]: P(drafted token i + 1 accepted given tested); Wilson intervals", kHigh,
           false, acceptance_at},
    Metric{"joint_at", "", "running product of acceptance_at", kHigh, false, joint_at},
    Metric{"accepted_histogram", "steps", "[n]: steps with n accepted tokens", kNone, false,
           accepted_histogram},
    Metric{"drafted_per_step", "tokens/step", "mean number of drafted tokens per step", kNone, false,
           drafted_per_step},
    Metric{
        "misplaced_ngrams", "",
        "Jacobi decoding: share of wrong token triples in a guessed block that occur elsewhere in the text",
        kNone, false, misplaced_ngrams},
    Metric{"source_share", "", "source -> share of the steps in which it drafted", kNone, false,
           source_share},
    Metric{"hit_rate", "", "source -> share of its drafts with an accepted token", kHigh, false, hit_rate},
    Metric{"r_prime", "", "tau / (gamma + 1) for drafts of constant length; not the same as alpha", kHigh,
           false, r_prime},
    Metric{"iid_p_value", "", "p-value of the G2 test that all positions have the same alpha", kNone, false,
           iid_p_value},
    Metric{"tau_over_eq1", "ratio",
           "measured tau / the tau of Leviathan et al. 2023, Eq. 1, at the measured alpha", kNone, false,
           tau_over_eq1},
};

}  // namespace

std::span<const Metric> acceptance_metrics() { return kAcceptanceMetrics; }

}  // namespace speclab
