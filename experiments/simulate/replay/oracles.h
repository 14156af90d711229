#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "experiments/simulate/replay/step_prices.h"
#include "experiments/simulate/trace.h"

namespace speclab {

/// Choices that only hindsight allows. They know which drafted tokens will be accepted. The regret of a
/// schedule is how much longer it takes per token than such a choice.

/// A trace and the prices of its steps. The trace must live as long as this object.
struct PricedTrace {
  const Trace* trace;
  StepPrices prices;
};

/// A choice in hindsight.
struct Oracle {
  std::string name;  ///< see oracles_of()
  std::vector<double>
      ns;                 ///< [prompts], the time of all texts of a prompt, in the order of texts_by_prompt()
  nlohmann::json choice;  ///< what was chosen, as members for a JSON object
};

/// The oracles of the trace `own`:
///   "step"             the draft length of each step that makes each text fastest, from 0 to the largest of
///                      `gammas`; a step drafts only tokens that will be accepted
///   "length"           the constant length of `gammas` that makes all texts fastest;
///                      choice {"gamma"}
///   "length_by_prompt" the constant length of `gammas` that makes each prompt fastest;
///                      choice {"gammas": {prompt: gamma}}
/// and, if `all` holds further traces of the same texts:
///   "drafter_by_step"  drafter and length of each step; choice {"cases": [ids]}.
///                      The time of a step is the time with its drafter. This assumes that the caches of all
///                      drafters follow the text for free, also while others draft
///   "drafter"          the drafter that makes all texts fastest, with its best constant length; choice
///                      {"case", "gamma"}
/// `all` are the traces of the run with their prices, `own` included. Traces of other texts are ignored.
/// Lengths that a trace does not have are left out for it. At least one of `gammas` must be at most the
/// longest draft of `own`.
std::vector<Oracle> oracles_of(const PricedTrace& own, std::span<const PricedTrace> all,
                               const std::vector<int>& gammas);

/// The time in ms that a choice takes longer for each token than the oracle, with an interval by a bootstrap
/// over prompts. `ns` and `tokens` are [prompts]. Sets regret[oracle.name] and ci95[oracle.name].
void add_regret(const CaseData& data, const std::vector<double>& ns, const std::vector<double>& tokens,
                const Oracle& oracle, nlohmann::json& regret, nlohmann::json& ci95);

}  // namespace speclab
