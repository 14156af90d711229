#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/model/files/inflate.h"
#include "core/decoding/loop/generation.h"
#include "core/decoding/loop/loop_options.h"
#include "core/decoding/registry.h"
#include "experiments/config/prompts.h"

namespace speclab {

/// Where a draft model comes from: a checkpoint, or layers of the target.
struct DraftSpec {
  std::string name;         ///< as in case ids
  std::string model;        ///< path; empty: layers of the target
  std::string from;         ///< where it can be had, for the message when it is missing
  std::vector<int> layers;  ///< these, ascending
  int keep = 0;             ///< or so many, spread evenly, first and last among them
  InflateShape inflate;     ///< what the checkpoint is inflated to
};

/// {"hidden": 2048, ...}. Throws Error with the pointer of what is no size.
InflateShape parse_inflate(const nlohmann::json& value, const std::string& where);
/// The sizes that are set; what parse_inflate reads.
nlohmann::json to_json(const InflateShape& shape);

/// The layers of `keep`: evenly spread over 0 .. count-1. Throws Error when there are not so many.
std::vector<int> spread_layers(int keep, int count);
/// Reads {"model": PATH}, with "inflate" in a named draft and "from" for messages, or {"layers": [0, 1] |
/// {"keep": 2}}; a name is made from it when `name` is empty.
DraftSpec parse_draft(const nlohmann::json& value, std::string name, const std::string& where);

/// One case: everything that decides what is run, resolved.
struct CaseSpec {
  /// With default options; the id is the strategy's name at first.
  CaseSpec(const std::string& strategy_name, std::string position)
      : id(strategy_name), strategy(find_strategy(strategy_name)), where(std::move(position)) {}

  std::string id;  ///< "speculative_sampling/draft=distilled/gamma=4"
  StrategyChoice strategy;
  GenerationOptions generation;
  std::string draft;  ///< name of a draft; empty: none
  VerifyWith verify = VerifyWith::one_pass;
  int devices = 1;                                 ///< that a step is divided over, see LoopOptions
  nlohmann::json axes = nlohmann::json::object();  ///< what varies over the experiment, of this case
  std::string reference;  ///< id of its autoregressive case; empty for that case itself
  bool added = false;     ///< the reference was not in the config
  std::string where;      ///< "a.json: /cases/0"

  nlohmann::json options() const;  ///< all options as resolved, flat
  LossClass loss_class() const;
};

struct CalibrationOptions {
  bool enabled = true;
  int rows = 32;     ///< t(n) for n = 1 .. rows, as far as the target's context goes
  int context = 0;   ///< committed positions during the measurement; 0: the mean context of the run
  int rounds = 160;  ///< short ones, spread over the run; at most one between two lines
  int texts = 12;    ///< short ones that each case decodes, for what its steps cost besides the target
  int drift_every =
      0;  ///< steps of a line between two forwards that say how slow the machine is; 0: only rounds say it
  void fields(OptionVisitor& visit);
};

/// An experiment as configured, checked without opening any model. See configs/README.md for the format.
struct Experiment {
  std::string file;
  std::string name, description;
  std::string target;                       ///< path of the target model
  InflateShape inflate;                     ///< what it is inflated to
  std::string target_name;                  ///< in "targets"; empty when there is one target only
  std::string target_from;                  ///< where it can be had
  std::map<std::string, DraftSpec> drafts;  ///< by name, inline ones included
  std::vector<PromptSpec> prompts;
  bool chat_template = true;
  std::string chat_family;  ///< of templates, by name; "": as the model's file has it
  std::string system;       ///< system message; "" = what the template adds on its own
  std::vector<std::uint64_t> seeds{1};
  int repeats = 3;
  int warmup = 1;  ///< untimed prompts per case before the first line
  bool teacher_forced = true;
  bool share_prefills = true;  ///< see PrefillCache
  CalibrationOptions calibration;
  std::vector<CaseSpec> cases;
  /// What others published, by case: [{"case", "source", "metrics": {name: x}, "predictions": {name: x}}].
  nlohmann::json published = nlohmann::json::array();
  nlohmann::json source;  ///< the config itself with --set applied

  const CaseSpec& case_by_id(const std::string& id) const;
  /// config.json: everything as resolved. Two runs with equal ones measure the same thing.
  nlohmann::json resolved() const;
};

/// Lines of an experiment: cases x prompts x seeds x repeats. A larger plan would not fit into memory, nor
/// end in a reasonable time.
inline constexpr std::uint64_t kMostLines = 1'000'000;

/// The keys of a config.
const std::vector<std::string>& config_keys();

/// Reads, applies --set, expands sweeps, adds missing references. Throws Error naming file, JSON pointer,
/// what was found and what was expected, or the --set that is to blame. A config may name several "targets":
/// there is an experiment for each, because baseline, calibration and t(n) are of one target.
std::vector<Experiment> load_experiments(const std::filesystem::path& file,
                                         const std::vector<std::string>& settings);
/// The same for a config that was read already. Messages call it `name`.
std::vector<Experiment> configure_experiments(nlohmann::json config, const std::string& name,
                                              const std::vector<std::string>& settings);
std::vector<Experiment> parse_experiments(const nlohmann::json& config, const std::string& name);
/// target_at: where in the file that was read "target" stands.
Experiment parse_experiment(nlohmann::json config, const std::string& name,
                            const std::string& target_at = "/target");

/// Keeps the cases whose id contains a match of the regular expression (RE2's syntax), with the references
/// that they need. Throws Error when none is left or the expression is malformed.
void filter_cases(Experiment& experiment, const std::string& regex);
/// Throws Error when there are more than kMostLines lines. Call it before the plan is made.
void require_few_lines(const Experiment& experiment);

/// Generation and strategy options of a case with a prompt's overrides. Keys that this strategy does not have
/// are other strategies' and left alone. True when an option of the strategy has another value now.
bool apply_prompt_options(const PromptSpec& prompt, StrategyChoice& strategy, GenerationOptions& generation);

}  // namespace speclab
