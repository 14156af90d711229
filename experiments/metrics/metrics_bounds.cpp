// Metrics of bounds: what the best verifier could have kept of the drafts of a run, and what two kinds of
// verifiers keep of the same drafts on average. The metrics exist for configs with "bounds": true.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "experiments/metrics/bound_verdict.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

/// RatioSums of two values of steps, by prompt.
struct RatioSums {
  std::vector<double> above, below;
  explicit RatioSums(const CaseData& data) : above(data.prompts.size()), below(data.prompts.size()) {}
  void add(std::size_t prompt, double a, double b) {
    above[prompt] += a;
    below[prompt] += b;
  }
};

MetricValue tau_bound(const CaseData& data) {
  RatioSums sums(data);
  for (const auto& [prompt, reached, bound] : tokens_against_bound(data)) sums.add(prompt, bound, 1);
  return ratio_of_sums(data, sums.above, sums.below);
}

MetricValue tau_of_bound(const CaseData& data) {
  RatioSums sums(data);
  for (const auto& [prompt, reached, bound] : tokens_against_bound(data)) sums.add(prompt, reached, bound);
  return ratio_of_sums(data, sums.above, sums.below);
}

MetricValue tau_excess(const CaseData& data) {
  const auto excess = excess_over_bound(tokens_against_bound(data));
  if (!excess) return {};
  constexpr double kNormal95 = 1.959964;
  return {excess->mean, interval_json(stats::Interval{excess->mean - kNormal95 * excess->standard_error,
                                                      excess->mean + kNormal95 * excess->standard_error})};
}

template <class Value>
MetricValue mean_over_steps(const CaseData& data, const Value& value) {
  RatioSums sums(data);
  if (!data.bounds) return {};
  for (std::size_t i = 0; i < data.prompts.size(); ++i) {
    const auto found = data.bounds->find(data.prompts[i]);
    if (found == data.bounds->end()) continue;
    for (const RecordedStep& step : found->second) {
      const auto [above, below] = value(step);
      sums.add(i, above, below);
    }
  }
  return ratio_of_sums(data, sums.above, sums.below);
}

bool drafts_something(const CaseData& data) {
  return any_step(data, [](const StepRecord& step) { return !step.drafted.empty(); });
}

/// True if the optimum is known at every position that the steps visited.
bool all_positions_known(const CaseData& data) {
  if (!data.bounds) return false;
  for (const auto& [prompt, steps] : *data.bounds) {
    for (const RecordedStep& step : steps) {
      if (!std::ranges::all_of(step.bounds.best, [](const auto& best) { return best.has_value(); }))
        return false;
    }
  }
  return true;
}

MetricValue position_acceptance(const CaseData& data) {
  return mean_over_steps(data, [](const RecordedStep& step) {
    return std::pair(static_cast<double>(std::min<std::size_t>(static_cast<std::size_t>(step.accepted),
                                                               step.bounds.best.size())),
                     static_cast<double>(step.bounds.best.size()));
  });
}

MetricValue position_bound(const CaseData& data) {
  if (!all_positions_known(data)) return {};
  return mean_over_steps(data, [](const RecordedStep& step) {
    double sum = 0;
    for (const auto& best : step.bounds.best) sum += *best;
    return std::pair(sum, static_cast<double>(step.bounds.best.size()));
  });
}

MetricValue tau_token_rule(const CaseData& data) {
  if (!drafts_something(data)) return {};
  return mean_over_steps(data, [](const RecordedStep& step) {
    return std::pair(theory::StepBounds::tokens(step.bounds.by_token), 1.0);
  });
}

MetricValue tau_path_rule(const CaseData& data) {
  if (!drafts_something(data)) return {};
  return mean_over_steps(data, [](const RecordedStep& step) {
    return std::pair(theory::StepBounds::tokens(step.bounds.by_path), 1.0);
  });
}

/// The path gain (docs/glossary.md) of the first `length` tokens of the step's draft.
double gain(const RecordedStep& step, std::size_t length) {
  double sum = 0;
  for (std::size_t i = 0; i < std::min(length, step.bounds.by_path.size()); ++i)
    sum += step.bounds.by_path[i] - step.bounds.by_token[i];
  return sum;
}

MetricValue path_gain(const CaseData& data) {
  if (!drafts_something(data)) return {};
  return mean_over_steps(data, [](const RecordedStep& step) { return std::pair(gain(step, SIZE_MAX), 1.0); });
}

MetricValue path_gain_at(const CaseData& data) {
  if (!data.bounds) return {};
  std::size_t longest = 0;
  for (const auto& [prompt, steps] : *data.bounds) {
    for (const RecordedStep& step : steps) {
      if (!step.bounds.chain) return {};
      longest = std::max(longest, step.bounds.by_path.size());
    }
  }
  MetricValue out{json::array(), json::array()};
  for (std::size_t length = 1; length <= longest; ++length) {
    const MetricValue at =
        mean_over_steps(data, [&](const RecordedStep& step) { return std::pair(gain(step, length), 1.0); });
    out.value.push_back(at.value);
    out.ci95.push_back(at.ci95);
  }
  if (out.value.empty()) return {};
  return out;
}

/// True if every step of the case has the drawn numbers of both rules.
bool has_drawn_gains(const CaseData& data) {
  if (!data.bounds || !drafts_something(data)) return false;
  for (const auto& [prompt, steps] : *data.bounds) {
    if (!std::ranges::all_of(steps, [](const RecordedStep& step) { return step.paired.has_value(); }))
      return false;
  }
  return true;
}

double drawn_gain(const RecordedStep& step) {
  return static_cast<double>(step.paired->by_path - step.paired->by_token);
}

MetricValue path_gain_drawn(const CaseData& data) {
  if (!has_drawn_gains(data)) return {};
  return mean_over_steps(data, [](const RecordedStep& step) { return std::pair(drawn_gain(step), 1.0); });
}

MetricValue path_gain_z(const CaseData& data) {
  if (!has_drawn_gains(data)) return {};
  std::vector<StepAgainstBound> steps;
  for (std::size_t i = 0; i < data.prompts.size(); ++i) {
    const auto found = data.bounds->find(data.prompts[i]);
    if (found == data.bounds->end()) continue;
    for (const RecordedStep& step : found->second)
      steps.push_back({i, drawn_gain(step), gain(step, SIZE_MAX)});
  }
  const auto difference = excess_over_bound(steps);
  if (!difference) return {};
  constexpr double kRounding = 1e-5;  // the record has seven digits
  return {std::abs(difference->mean) > kRounding ? difference->deviations() : 0.0, nullptr};
}

const std::array kBoundMetrics = {
    Metric{"tau_bound", "tokens/step",
           "largest tau of a lossless verifier of the same drafts: on chains, of any verifier that uses only "
           "the rows p and q along the drafted chain; on trees, of one that decides one position after the "
           "other, at the positions that "
           "the steps visited",
           estimator::kMeanOverSteps, kHigh, false, tau_bound},
    Metric{"tau_of_bound", "ratio", "tau / tau_bound", estimator::kRatioOfSums, kHigh, false, tau_of_bound},
    Metric{"tau_excess", "tokens/step",
           "tau - tau_bound, with an interval over steps; above 0 by more than chance: the verifier is wrong",
           estimator::kPairedSteps, kNone, false, tau_excess},
    Metric{"position_acceptance", "",
           "share of the visited positions at which a drafted child was emitted; if positions have "
           "several children, this is not the alpha of one draft",
           estimator::kRatioOfSums, kHigh, false, position_acceptance},
    Metric{"position_bound", "",
           "mean over the visited positions of the largest acceptance of their children by any lossless rule",
           estimator::kRatioOfSums, kHigh, false, position_bound},
    Metric{"tau_token_rule", "tokens/step",
           "expected tau of the rule \"rejection\" on the drafts of this case, over the coins of the rule",
           estimator::kMeanOverSteps, kHigh, false, tau_token_rule},
    Metric{"tau_path_rule", "tokens/step",
           "expected tau of the rule \"traversal\" (on chains \"block\") on the drafts of this case",
           estimator::kMeanOverSteps, kHigh, false, tau_path_rule},
    Metric{"path_gain", "tokens/step", "tau_path_rule - tau_token_rule, paired by step",
           estimator::kPairedSteps, kHigh, false, path_gain},
    Metric{
        "path_gain_drawn", "tokens/step",
        "chains: tokens that \"block\" keeps minus tokens that \"rejection\" keeps, of the same drafts with "
        "the same coins; path_gain has the same expectation, over the coins and the draws of the drafts",
        estimator::kPairedSteps, kHigh, false, path_gain_drawn},
    Metric{
        "path_gain_z", "standard errors",
        "chains: (path_gain_drawn - path_gain) / the standard error of this difference over steps; if it is "
        "far from 0, the drawn numbers are not those of the two rules",
        estimator::kZTest, kNone, false, path_gain_z},
    Metric{"path_gain_at", "tokens/step",
           "chains: [i]: path_gain if only the first i + 1 tokens of each draft are verified",
           estimator::kPairedSteps, kHigh, false, path_gain_at},
};

}  // namespace

std::span<const Metric> bound_metrics() { return kBoundMetrics; }

}  // namespace speclab
