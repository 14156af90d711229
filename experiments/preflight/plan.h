#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "experiments/config/experiment.h"

namespace speclab {

/// The two experiments of `speclab preflight`. The trace drafts at every position of some texts, so that
/// draft lengths can be compared without running the models again. The check decodes other prompts with the
/// draft length that the trace recommends. The config (configs/preflight.json) names the strategies.
class PreflightPlan {
 public:
  /// What the user asks for. Empty or 0: as in the config.
  struct Wish {
    std::string target;    ///< path of a model
    nlohmann::json draft;  ///< {"model": PATH} or {"layers": {"keep": N}}, as in "drafts" of a config
    std::string prompts;   ///< a JSONL file
    int per_category = 0;  ///< prompts of each category in each of the two experiments
    int tokens = 0;        ///< new tokens of each turn
    int longest = 0;       ///< longest draft of the trace
  };

  /// Reads the config at `file`. Throws Error unless its only draft is called "draft", its "options" hold
  /// "emit_at_most": 1, and each entry of its "cases" gives exactly one case.
  PreflightPlan(const std::string& file, const Wish& wish);

  /// The trace, on every second prompt of each category, beginning with the first.
  Experiment trace() const;
  /// The case `id` of the trace with drafts of `length` tokens, and its reference, on the other prompts.
  /// Throws Error if there are no other prompts.
  Experiment check(const std::string& id, int length) const;

 private:
  std::string file_;
  nlohmann::json config_;
};

}  // namespace speclab
