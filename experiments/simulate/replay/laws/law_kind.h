#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "core/decoding/registry.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// Laws of drafters whose drafts depend on earlier steps (StrategyInfo::follows_steps): lookahead decoding,
/// Jacobi decoding and token recycling. No trace tells what they would draft, so a replay predicts them by a
/// law whose parameters are fitted to measured cases.

/// Which prompts of a case are used, by index.
using PromptChoice = std::function<bool(std::size_t prompt)>;

/// tau of every setting of a drafter, by a fitted law.
struct TauLaw {
  nlohmann::json parameters = nlohmann::json::object();           ///< the fitted parameters by name
  std::function<double(const nlohmann::json& options)> tau = {};  ///< of a case with these options
};

/// The law of a drafter.
struct LawKind {
  StrategyLaw id = StrategyLaw::none;         ///< the law that the strategy registers (StrategyInfo::law)
  std::string_view law;                       ///< the law and its source, for people
  std::string_view assumptions;               ///< sentences for people
  std::span<const std::string_view> setting;  ///< names of the options that the law is about
  int least_cells = 1;                        ///< number of settings that a fit needs
  /// Whether the law is about a case with these options.
  bool (*covers)(const nlohmann::json& options) = nullptr;
  /// Rows, and drafted tokens, of a step that feeds as much as it may.
  double (*rows)(const nlohmann::json& options) = nullptr;
  double (*drafted)(const nlohmann::json& options) = nullptr;
  /// Fits the law to these prompts of these cases, which differ in the setting alone. Each case must have
  /// steps with these prompts.
  TauLaw (*fit)(std::span<const CaseData* const> cells, const PromptChoice& prompts) = nullptr;
};

extern const LawKind kLookaheadKind, kJacobiKind, kRecyclingKind;
std::span<const LawKind* const> law_kinds();  ///< all of them

}  // namespace speclab
