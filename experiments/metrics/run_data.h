#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/measure/rounds.h"
#include "core/measure/run_result.h"
#include "core/measure/stats.h"
#include "experiments/metrics/noise/machine_drift.h"
#include "experiments/metrics/recorded_bounds.h"

namespace speclab {

/// The finished lines of one prompt under one case: [seeds][repeats], in ascending order.
using PromptLines = std::vector<std::vector<LineRecord>>;

/// One case of a finished or interrupted run, ready for metrics; or the part of it that belongs to a category
/// or a prompt.
struct CaseData {
  nlohmann::json config;             ///< the case's entry in "cases" of config.json
  std::vector<std::string> prompts;  ///< ids of the prompts with finished lines, in the order of the config
  std::vector<std::string> categories;                      ///< category of each prompt
  std::vector<std::shared_ptr<const PromptLines>> lines;    ///< [prompts]
  std::vector<std::pair<std::string, std::string>> errors;  ///< prompt and message of failed lines
  /// Prompt and message of the estimates in teacher.jsonl that failed.
  std::vector<std::pair<std::string, std::string>> failed_estimates;
  /// The autoregressive case. Null for the autoregressive case itself, and when the autoregressive case has
  /// no lines.
  std::shared_ptr<const CaseData> reference;
  bool branches = false;  ///< some draft of the case is a tree with branches, and no step feeds probes
  /// The chain that a case with trees is compared with (find_best_chains); null for other cases, and when no
  /// chain of the run is comparable.
  std::shared_ptr<const CaseData> best_chain;

  nlohmann::json environment;
  nlohmann::json calibration;  ///< see costs_as_paid; null without a calibration
  /// See resampled_costs and costs_as_paid.
  std::shared_ptr<const std::vector<nlohmann::json>> resampled_calibrations;
  std::shared_ptr<const MachineDrift> drift;  ///< of the run; null without a calibration
  /// From teacher.jsonl (experiments/run/teacher.h), by prompt: the sum of the rule's expected acceptance and
  /// the number of positions.
  std::map<std::string, std::pair<double, double>> alpha_forced;
  /// From teacher.jsonl, by prompt: the sum of -log p of the case's text and the number of its tokens.
  std::map<std::string, std::pair<double, double>> nll;

  /// From bounds.jsonl: the steps of repeat 0 with the bounds of their drafts, by prompt. Null without any.
  std::shared_ptr<const std::map<std::string, std::vector<RecordedStep>>> bounds;

  bool intervals = true;  ///< false: no bootstrap, for parts of a case
  std::string id() const { return config.at("id"); }
  const nlohmann::json& options() const { return config.at("options"); }
  int devices() const { return config.value("devices", 1); }  ///< devices that each step was divided over
  /// True when some line differs from its reference although equality is promised. Such a case has no speed.
  bool unequal() const;
  /// The steps of repeat 0, [prompts], one seed after the other. Empty when some draft branches.
  std::vector<PromptRounds> rounds() const;
  stats::BootstrapOptions bootstrap() const;
  /// The part of this case with the prompts of one category.
  std::shared_ptr<CaseData> of_category(const std::string& category) const;
  std::shared_ptr<CaseData> of_prompt(const std::string& prompt) const;  ///< the part with one prompt
};

/// A run folder as data.
struct RunData {
  nlohmann::json config, environment, calibration;
  std::vector<std::shared_ptr<CaseData>> cases;  ///< in the order of the config
  bool complete = true;                          ///< every planned line is there
};
/// Reads a run folder. Throws Error when the folder holds no run, when a line is damaged or occurs twice,
/// when a line is in the file of another case, or when a line is not planned in config.json.
RunData load_run(const std::filesystem::path& folder);

/// The part of a run with the prompts of one category, as if nothing else had been measured; `config` stays
/// whole. Throws Error for a category that no finished line has.
RunData run_of_category(const RunData& run, const std::string& category);

/// Throws Error for a run without a finished line, for commands that have nothing to show without one. The
/// message says why there is none: nothing was measured yet, every line failed, or the record keeps no lines.
/// `folder` is the folder of the run.
void require_lines(const RunData& run, const std::filesystem::path& folder);

/// A value of the lines of two cases, [prompts][repeats], summed over seeds. It covers the prompts that both
/// cases have with the same seeds, and the repeats that all of these prompts have.
struct PairedTimes {
  stats::Times base, test;
};
/// Decode times in seconds; `with_prefill` adds the prefill of target and draft.
PairedTimes paired_times(const CaseData& base, const CaseData& test, bool with_prefill);
/// Pairs any value of a line.
PairedTimes paired_values(const CaseData& base, const CaseData& test,
                          const std::function<double(const LineRecord&)>& value);
/// Decode times and the numbers of tokens that were emitted in them.
struct PairedDecoding {
  stats::Decoded base, test;
};
PairedDecoding paired_decoding(const CaseData& base, const CaseData& test, bool with_prefill);
/// Returns time per token of the case `base` / time per token of the case `test` (stats::paired_speedup). The
/// cases may belong to different runs. Absent when they have no prompt with the same seeds in common, or when
/// one of them has no token or no time in some repeat.
std::optional<stats::Ratio> speed_ratio(const CaseData& base, const CaseData& test, bool with_prefill = false,
                                        const stats::BootstrapOptions& options = {});
stats::Times decode_times(const CaseData& data);

}  // namespace speclab
