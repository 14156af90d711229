#include "experiments/analysis/strategy_theory.h"

#include <nlohmann/json.hpp>

#include <array>

namespace speclab {
namespace {

using nlohmann::json;

constexpr std::array kTheories = {&kLookaheadTheory};

}  // namespace

void require_theory_options(const json& entry, const std::string& where) {
  for (const StrategyTheory* theory : kTheories) theory->require_options(entry, where);
}

void require_theory_sections(json& summary, const std::string& where) {
  for (const StrategyTheory* theory : kTheories) theory->require_sections(summary, where);
}

json theory_sections(std::span<const std::shared_ptr<CaseData>> cases, const json& calibration) {
  json all = json::object();
  for (const StrategyTheory* theory : kTheories) all.update(theory->sections(cases, calibration));
  return all;
}

json theory_predictions(const json& sections, const std::string& case_id, const json& tau) {
  json all = json::object();
  for (const StrategyTheory* theory : kTheories) all.update(theory->predictions(sections, case_id, tau));
  return all;
}

std::optional<TauPrediction> theory_tau(const json& sections, const std::string& case_id) {
  for (const StrategyTheory* theory : kTheories) {
    if (auto prediction = theory->tau(sections, case_id)) return prediction;
  }
  return std::nullopt;
}

std::string theory_text(const json& summary) {
  std::string text;
  for (const StrategyTheory* theory : kTheories) text += theory->text(summary);
  return text;
}

}  // namespace speclab
