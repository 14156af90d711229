#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "core/decoding/registry.h"
#include "experiments/metrics/run_data.h"
#include "experiments/simulate/replay/replayed_settings.h"

namespace speclab {

/// The strategies that a preflight compares: chains and trees of the draft, and strategies without it.

/// Whether the strategy of the case is searched as `what` (StrategyInfo::searched_as). False for a strategy
/// that this version does not know.
bool is_searched_as(const CaseData& data, SearchedAs what);

/// The best setting of each traced case, fastest first. `own` is the case with chains of the judged draft;
/// every case with the same draft model also counts as "own". Returns
///   [{"what": "draft chain", "draft tree", "n-gram chain", "prompt copies" or the name of another strategy,
///     "strategy", "case": id of the traced case, "own": whether it drafts with the draft that is judged,
///     "gamma": longest draft | null for a tree, "tree": {"parents", "ranks"} of a tree file | null,
///     "tau", "tau_ci95", "speedup", "speedup_ci95"}]
/// Throws Error for a setting of a case that the run does not have.
nlohmann::json best_of_strategies(const RunData& run, std::span<const ReplayedSetting> settings,
                                  const CaseData& own);

/// The tree of an entry as the contents of a tree file (core/decoding/drafting/tree_shape.h).
nlohmann::json tree_file_of(const nlohmann::json& strategy);

/// What an entry drafts, in words: "drafts of 3 tokens", "a tree of 7 drafted tokens in 3 levels".
std::string setting_words(const nlohmann::json& strategy);

}  // namespace speclab
