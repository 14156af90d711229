#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "experiments/metrics/run_data.h"

/// What the theory of single strategies adds to a run: sections of summary.json, predictions, and texts for
/// people. The code of summaries and reports calls these functions, so it names no strategy. Today lookahead
/// decoding is the only strategy with a theory of its own (lookahead_theory.cpp).
namespace speclab {

/// tau of a case as a theory predicts it, and the name of the formula that gives this tau.
struct TauPrediction {
  double tau = 0;
  std::string law;
};

/// The theory of one strategy.
struct StrategyTheory {
  /// Throws Error when a case of config.json (`entry`) lacks an option that the theory reads.
  void (*require_options)(const nlohmann::json& entry, const std::string& where);
  /// Checks the theory's sections of a summary. Adds empty sections to a summary of an older version.
  void (*require_sections)(nlohmann::json& summary, const std::string& where);
  /// The theory's sections of summary.json by name.
  nlohmann::json (*sections)(std::span<const std::shared_ptr<CaseData>> cases,
                             const nlohmann::json& calibration);
  /// Entries for a case's "predictions", from the theory's sections. `tau` is the measured one or null. An
  /// empty object when the theory says nothing about the case.
  nlohmann::json (*predictions)(const nlohmann::json& sections, const std::string& case_id,
                                const nlohmann::json& tau);
  std::optional<TauPrediction> (*tau)(const nlohmann::json& sections, const std::string& case_id);
  /// The sections of a summary as text; empty when the sections are empty.
  std::string (*text)(const nlohmann::json& summary);
};
extern const StrategyTheory kLookaheadTheory;

// The functions of StrategyTheory, over all theories.
void require_theory_options(const nlohmann::json& entry, const std::string& where);
void require_theory_sections(nlohmann::json& summary, const std::string& where);
nlohmann::json theory_sections(std::span<const std::shared_ptr<CaseData>> cases,
                               const nlohmann::json& calibration);
nlohmann::json theory_predictions(const nlohmann::json& sections, const std::string& case_id,
                                  const nlohmann::json& tau);
std::optional<TauPrediction> theory_tau(const nlohmann::json& sections, const std::string& case_id);
std::string theory_text(const nlohmann::json& summary);

}  // namespace speclab
