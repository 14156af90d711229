#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/loop/generation.h"
#include "core/decoding/loop/loop_options.h"
#include "core/decoding/registry.h"
#include "experiments/config/draft_spec.h"
#include "experiments/config/prompts.h"

namespace speclab {

/// One case of an experiment: a strategy with all its options resolved.
struct CaseSpec {
  /// A case with default options. Its id is the strategy's name until the config adds to it.
  CaseSpec(const std::string& strategy_name, std::string position)
      : id(strategy_name), strategy(find_strategy(strategy_name)), where(std::move(position)) {}

  std::string id;  ///< "speculative_sampling/draft=distilled/gamma=4"
  StrategyChoice strategy;
  GenerationOptions generation;
  /// Name of the draft, or the names of several joined by "+"; empty: none. Records have it as "draft".
  std::string draft;
  std::vector<std::string> drafts;  ///< names of the drafts, in the order of the case
  VerifyWith verify = VerifyWith::one_pass;
  int devices = 1;  ///< number of devices that a step is divided over, see LoopOptions
  nlohmann::json axes =
      nlohmann::json::object();  ///< this case's values of the options that the config sweeps
  std::string reference;         ///< id of the reference; "" if this case is a reference itself
  bool added = false;            ///< true for a reference that the config did not name
  std::string where;             ///< place in the config: "a.json: /cases/0"

  nlohmann::json options() const;  ///< all options as resolved, flat
  LossClass loss_class() const;
};

/// Settings of the calibration (experiments/run/calibration.h).
struct CalibrationOptions {
  bool enabled = true;
  /// Measures t(n) for n from 1 to `rows`, as far as the target's context allows; above 128 only for each
  /// 64th n and for `rows` itself.
  int rows = 32;
  /// Measures forwards of each draft model over 1, 2, 4, ... up to this many rows. Trees need many rows.
  int draft_rows = 2;
  int context = 0;   ///< committed positions before the measured rows; 0: the mean context of the run
  int rounds = 160;  ///< number of short rounds, spread over the run; at most one between two lines
  int texts = 12;    ///< number of short texts that each case decodes, for the costs of its steps
  /// Number of steps of a line between two probes of the machine's speed (MachineProbes); 0: no probes.
  int probe_every = 0;
  void fields(OptionVisitor& visit);
};

/// The version of what `row_details` adds to a record. config.json has it as "row_details".
inline constexpr int kRowDetailsVersion = 1;

/// An experiment as its config describes it, checked without opening a model. configs/README.md describes the
/// format, config_file.h reads it.
struct Experiment {
  std::string file;
  std::string name, description;
  std::string target;                     ///< path of the target model; of a toy, its description
  std::optional<toy::MarkovSpec> markov;  ///< the toy, if the target is one (core/model/toy)
  InflateShape inflate;                   ///< the larger shape that the target is embedded in, if any
  std::string target_name;  ///< the target's name in "targets"; empty for a config with "target"
  std::string target_from;  ///< where to get the target
  std::map<std::string, DraftSpec> drafts;  ///< by name, inline ones included
  std::vector<PromptSpec> prompts;
  bool chat_template = true;
  std::string chat_family;  ///< name of a family of chat templates; "": the template in the model's file
  std::string system;       ///< system message; "": the message that the template adds by itself
  std::vector<std::uint64_t> seeds{1};
  int repeats = 3;
  int warmup = 1;  ///< untimed prompts per case before the first line
  bool teacher_forced = true;
  bool share_prefills = true;  ///< see PrefillCache
  bool bounds = false;         ///< compute the bounds of each step's draft (core/theory/step_bounds.h)
  bool row_details = false;    ///< see LoopOptions::row_details
  CalibrationOptions calibration;
  std::vector<CaseSpec> cases;
  /// Numbers that others published, by case (experiments/config/published.h).
  nlohmann::json published = nlohmann::json::array();
  nlohmann::json source;  ///< the config itself with --set applied

  const CaseSpec& case_by_id(const std::string& id) const;
  /// The content of config.json: all settings as resolved. Two runs with equal content measure the same.
  nlohmann::json resolved() const;
};

/// The largest number of lines that an experiment may have: cases x prompts x seeds x repeats. A larger plan
/// would not fit into memory and would not end in a reasonable time.
inline constexpr std::uint64_t kMostLines = 1'000'000;

/// Keeps the cases whose id contains a match of the regular expression (RE2's syntax), and the references of
/// these cases. Throws Error when no case is left or the expression is malformed.
void filter_cases(Experiment& experiment, const std::string& regex);
/// Throws Error when there are more than kMostLines lines. Call it before the plan is made.
void require_few_lines(const Experiment& experiment);

/// Applies a prompt's overrides to the options of a case. Skips keys that the case's strategy does not have,
/// because they belong to other strategies. Returns true when an option of the strategy changed its value.
bool apply_prompt_options(const PromptSpec& prompt, StrategyChoice& strategy, GenerationOptions& generation);

}  // namespace speclab
