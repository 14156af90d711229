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
#include "experiments/metrics/machine_drift.h"

namespace speclab {

/// The finished lines of one prompt under one case: [seeds][repeats], in order of seed and repeat.
using PromptLines = std::vector<std::vector<LineRecord>>;

/// One case of a finished or interrupted run, ready for metrics. A subset of its prompts makes another one
/// (categories).
struct CaseData {
  nlohmann::json config;                ///< its entry in config.json's "cases"
  std::vector<std::string> prompts;     ///< ids, those with finished lines, in the order of the config
  std::vector<std::string> categories;  ///< of each prompt
  std::vector<std::shared_ptr<const PromptLines>> lines;    ///< [prompts]
  std::vector<std::pair<std::string, std::string>> errors;  ///< prompt and message of failed lines
  std::shared_ptr<const CaseData>
      reference;  ///< its autoregressive case; null for that case itself, or when it has no lines

  nlohmann::json environment;
  nlohmann::json calibration;  ///< see calibration_costs; null when there is none
  std::shared_ptr<const std::vector<nlohmann::json>> resampled_calibrations;  ///< see resampled_costs
  std::shared_ptr<const MachineDrift> drift;                      ///< of the run; null without a calibration
  std::map<std::string, std::pair<double, double>> alpha_forced;  ///< by prompt: sum, positions
  std::map<std::string, std::pair<double, double>> nll;           ///< by prompt: sum, tokens

  bool intervals = true;  ///< false: no bootstrap (categories)
  std::string id() const { return config.at("id"); }
  const nlohmann::json& options() const { return config.at("options"); }
  int devices() const { return config.value("devices", 1); }  ///< that steps were divided over
  /// A line that differs from its reference although equality is promised: such a case has no speed.
  bool unequal() const;
  std::vector<PromptRounds> rounds()
      const;  ///< [prompts], of repeat 0, seeds one after the other; empty when drafts branch
  stats::BootstrapOptions bootstrap() const;
  /// Only the prompts of one category.
  std::shared_ptr<CaseData> of_category(const std::string& category) const;
  std::shared_ptr<CaseData> of_prompt(const std::string& prompt) const;  ///< the same for one prompt
};

/// A run folder as data.
struct RunData {
  nlohmann::json config, environment, calibration;
  std::vector<std::shared_ptr<CaseData>> cases;  ///< in the order of the config
  bool complete = true;                          ///< every planned line is there
};
/// Throws Error when the folder holds no run, when a line is damaged, stands twice, is in the file of another
/// case, or is none of those that config.json plans.
RunData load_run(const std::filesystem::path& folder);

/// Decode times in seconds (with those of both prefills), seeds summed, [prompts][repeats]: of the prompts
/// that both have, with the repeats that all of them have.
struct PairedTimes {
  stats::Times base, test;
};
PairedTimes paired_times(const CaseData& base, const CaseData& test, bool with_prefill);
/// The same of anything that a line has.
PairedTimes paired_values(const CaseData& base, const CaseData& test,
                          const std::function<double(const LineRecord&)>& value);
/// Those times beside the tokens that were emitted in them.
struct PairedDecoding {
  stats::Decoded base, test;
};
PairedDecoding paired_decoding(const CaseData& base, const CaseData& test, bool with_prefill);
/// How many times as fast as `base` the case `test` emits a token, see stats::paired_speedup. The two may be
/// of two runs. Absent when they have no prompt in common or one of them emitted nothing.
std::optional<stats::Ratio> speed_ratio(const CaseData& base, const CaseData& test, bool with_prefill = false,
                                        const stats::BootstrapOptions& options = {});
stats::Times decode_times(const CaseData& data);

}  // namespace speclab
