#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/config/experiment.h"

namespace speclab {

/// The two experiments of `speclab preflight`. The trace drafts at every position of some texts, so that
/// settings can be compared without running the models again. The check decodes other prompts with the
/// settings that the trace recommends. The config (configs/preflight.json) names the strategies.
class PreflightPlan {
 public:
  /// What the user asks for. Empty, null or 0: as in the config.
  struct Wish {
    std::string target;      ///< path of a model
    nlohmann::json inflate;  ///< shape that the target is inflated to, as in a config
    nlohmann::json draft;    ///< {"model": PATH} or {"layers": {"keep": N}}, as in "drafts" of a config
    /// Options of the strategy that drafts with n-grams instead of a draft model (SearchedAs::ngram_chain).
    /// Null: a draft model drafts.
    nlohmann::json ngrams;
    std::string prompts;   ///< a JSONL file
    int per_category = 0;  ///< prompts of each category in each of the two experiments
    int tokens = 0;        ///< new tokens of each turn
    int longest = 0;       ///< longest draft of the trace
  };

  /// Reads the config at `file`. Throws Error unless its only draft is called "draft", its "options" hold
  /// "emit_at_most": 1, and each entry of its "cases" gives exactly one case. To be inflated, its target must
  /// be a path.
  PreflightPlan(const std::string& file, const Wish& wish);

  /// The trace, on every second prompt of each category, beginning with the first.
  Experiment trace() const;
  /// The entry of "cases" that drafts as the case `id` of the trace does, with drafts of `length` tokens, or
  /// with the tree in the file `tree` if `tree` is not "".
  nlohmann::json setting(const std::string& id, int length, const std::string& tree) const;
  /// The reference and then the cases of these entries, in this order, on the prompts that the trace does not
  /// use. Throws Error if there are no such prompts.
  Experiment check(const std::vector<nlohmann::json>& settings) const;
  /// The id of the case of `check` that entry `index` of its settings describes.
  static std::string case_of_setting(const Experiment& check, std::size_t index);

 private:
  std::string file_;
  nlohmann::json config_;
};

}  // namespace speclab
