#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiments/config/experiment.h"

namespace speclab {

/// What `speclab optimize config` searches, and how it measures the best settings.
struct ConfigWish {
  int longest = 8;          ///< longest chain
  int width = 4;            ///< most children of a node of a tree
  int nodes = 16;           ///< rows of the largest tree, the pending token included
  int depth = 8;            ///< levels of the deepest tree
  int lookahead_rows = 32;  ///< rows of the largest step of lookahead decoding; below 8: it is not searched
  int repeats = 3;          ///< timed decodings of each prompt in the measurement
};

/// The experiments of `speclab optimize config CONFIG`. The first two run on every second prompt of each
/// category, beginning with the first. The measurement runs on the other prompts, so that the choice is not
/// tested on the prompts on which it was made.
///
/// - trace: what every drafter proposes at every position of the target's texts (plan_trace). The drafters
///   come from the config's cases that can be traced. A chain and a tree of each draft model of the config,
///   and copies of the prompt, are added where the config lacks them.
/// - lookahead: a grid of settings (W, N, G) of lookahead decoding. Lookahead decoding cannot be traced,
///   because its guesses depend on earlier steps. Instead, its law is fitted to the grid.
/// - measurement: plain decoding and chosen settings, with repeats.
class SearchPlan {
 public:
  /// `config` is the config of the file `name` and `settings` are the --set of the command line. Throws Error
  /// for a config with several targets, for a config whose cases have different generation options, without a
  /// category of two prompts, and as plan_trace() does.
  SearchPlan(nlohmann::json config, const std::string& name, const std::vector<std::string>& settings,
             const ConfigWish& wish);

  Experiment trace() const;
  /// Absent if the wish leaves lookahead decoding out.
  std::optional<Experiment> lookahead() const;
  /// Cases of the config that are not searched, and why.
  const std::vector<std::string>& notes() const { return notes_; }

  /// The entry of "cases" that drafts as the case `id` of the trace does. `tree` is the file of its tree. If
  /// `tree` is "", it drafts `length` tokens, or fewer if the traced case drafts fewer; null if no option of
  /// the case sets the length.
  nlohmann::json setting(const std::string& id, int length, const std::string& tree) const;
  /// The entry of "cases" of a setting of lookahead decoding.
  static nlohmann::json lookahead_setting(int W, int N, int G);

  /// The measurement: the reference, then the cases of the entries in this order.
  Experiment measurement(const std::vector<nlohmann::json>& entries) const;
  /// The config with this entry as its only case besides plain decoding.
  nlohmann::json config_with(const nlohmann::json& entry, const std::string& description) const;

 private:
  nlohmann::json base(const std::string& suffix) const;  // target, prompts and options of the trace

  std::string file_, name_;
  ConfigWish wish_;
  nlohmann::json config_;    // with --set applied
  nlohmann::json searched_;  // the config of the trace
  std::vector<std::string> notes_;
};

}  // namespace speclab
