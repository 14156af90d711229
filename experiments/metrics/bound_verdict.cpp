#include "experiments/metrics/bound_verdict.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <functional>

#include "core/decoding/rules/accept.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

void for_each_bound(const CaseData& data,
                    const std::function<void(std::size_t, const RecordedStep&)>& visit) {
  if (!data.bounds) return;
  for (std::size_t i = 0; i < data.prompts.size(); ++i) {
    const auto found = data.bounds->find(data.prompts[i]);
    if (found == data.bounds->end()) continue;
    for (const RecordedStep& step : found->second) visit(i, step);
  }
}

/// True if the rule decides one position after the other.
bool walks(const CaseData& data) {
  const AcceptanceRule* rule = recorded_rule(data);
  return rule != nullptr && rule->test != nullptr;
}

constexpr const char* kExpectedTokens = "expected tokens";

json verdict(const char* what, const std::vector<StepAgainstBound>& steps) {
  const auto excess = excess_over_bound(steps);
  constexpr double kRounding = 1e-5;  // the record has seven digits
  if (!excess || excess->mean <= kRounding || excess->deviations() <= kWrongDeviations) return nullptr;
  double reached = 0, bound = 0;
  for (const StepAgainstBound& step : steps) reached += step.reached, bound += step.bound;
  const auto count = static_cast<double>(steps.size());
  return {{"what", what},
          {"measured", reached / count},
          {"bound", bound / count},
          {"deviations", excess->deviations()}};
}

}  // namespace

std::vector<StepAgainstBound> tokens_against_bound(const CaseData& data) {
  std::vector<StepAgainstBound> out;
  const bool walking = walks(data);
  bool known = true;
  for_each_bound(data, [&](std::size_t prompt, const RecordedStep& step) {
    double bound = 1;
    if (step.bounds.chain) {
      bound = theory::StepBounds::tokens(step.bounds.by_path);
    } else {
      known = known && walking;
      for (const auto& best : step.bounds.best) {
        known = known && best.has_value();
        bound += best.value_or(0);
      }
    }
    out.push_back({prompt, static_cast<double>(step.emitted), bound});
  });
  return known ? out : std::vector<StepAgainstBound>();
}

std::vector<StepAgainstBound> tokens_against_expectation(const CaseData& data) {
  std::vector<StepAgainstBound> out;
  const AcceptanceRule* rule = recorded_rule(data);
  if (rule == nullptr || !rule->keeps_paths_by_rho) return out;
  for_each_bound(data, [&](std::size_t prompt, const RecordedStep& step) {
    out.push_back(
        {prompt, static_cast<double>(step.emitted), theory::StepBounds::tokens(step.bounds.by_path)});
  });
  return out;
}

std::vector<StepAgainstBound> first_tokens_against_bound(const CaseData& data) {
  std::vector<StepAgainstBound> out;
  bool known = true;
  for_each_bound(data, [&](std::size_t prompt, const RecordedStep& step) {
    if (step.bounds.best.empty()) return;
    known = known && step.bounds.best.front().has_value();
    out.push_back({prompt, step.accepted > 0 ? 1.0 : 0.0, step.bounds.best.front().value_or(0)});
  });
  return known ? out : std::vector<StepAgainstBound>();
}

std::optional<Excess> excess_over_bound(const std::vector<StepAgainstBound>& steps) {
  if (steps.empty()) return std::nullopt;
  double sum = 0, squares = 0;
  for (const StepAgainstBound& step : steps) {
    const double difference = step.reached - step.bound;
    sum += difference;
    squares += difference * difference;
  }
  const auto count = static_cast<double>(steps.size());
  return Excess{sum / count, std::sqrt(squares) / count};
}

json above_bound(const CaseData& data) {
  if (data.config["loss_class"] == "L3") return nullptr;
  json found = verdict("tokens per step", tokens_against_bound(data));
  if (found.is_null()) found = verdict("first token", first_tokens_against_bound(data));
  if (found.is_null()) found = verdict(kExpectedTokens, tokens_against_expectation(data));
  return found;
}

std::string wrong_rules_text(const json& summary) {
  std::string text;
  for (const json& entry : summary.at("cases")) {
    const json wrong = entry.value("above_bound", json());
    if (wrong.is_null()) continue;
    const auto what = wrong["what"].get<std::string>();
    const auto bound = wrong["bound"].get<double>();
    const bool of_its_own = what == kExpectedTokens;
    text += fmt::format(
        "WRONG VERIFIER: {}: {}: {:.4g} measured, {} (the difference is {:.1f} standard "
        "errors). {}\n",
        entry["id"].get<std::string>(), of_its_own ? "tokens per step" : what,
        wrong["measured"].get<double>(),
        of_its_own ? fmt::format("{:.4g} expected of its rule on the same drafts", bound)
                   : fmt::format("at most {:.4g} possible for a lossless rule", bound),
        wrong["deviations"].get<double>(),
        of_its_own ? "It does not verify as its rule does." : "Its text does not follow the target's law.");
  }
  return text;
}

}  // namespace speclab
