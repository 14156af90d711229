#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/decoding/rules/accept.h"
#include "experiments/metrics/metrics.h"

/// Sums over the lines of a case, for the files of the metric table and for analyses.
namespace speclab {

inline constexpr Better kHigh = Better::higher, kLow = Better::lower, kNone = Better::neither;

/// The names of the estimators of all metrics. The section "estimators" of results/SCHEMA.md says what each
/// of them computes and lists its metrics; a test compares that section with these names.
namespace estimator {
inline constexpr std::string_view kCount = "count";
inline constexpr std::string_view kRatioOfCounts = "ratio of counts";
inline constexpr std::string_view kComparison = "exact comparison";
inline constexpr std::string_view kRatioOfSums = "ratio of sums";
inline constexpr std::string_view kMedianRatio = "ratio of sums, median over repeats";
inline constexpr std::string_view kPairedRatio = "paired ratio of sums, median over repeats";
inline constexpr std::string_view kCensored = "censored maximum likelihood";
inline constexpr std::string_view kMeanOverTests = "mean over tested tokens";
inline constexpr std::string_view kMeanOverTokens = "mean over tokens";
inline constexpr std::string_view kMeanOverSteps = "mean over steps";
inline constexpr std::string_view kPairedSteps = "mean of paired differences over steps";
inline constexpr std::string_view kVariance = "sample variance over steps";
inline constexpr std::string_view kDeviation = "sample standard deviation over steps";
inline constexpr std::string_view kProportions = "proportions";
inline constexpr std::string_view kProduct = "product of proportions";
inline constexpr std::string_view kBins = "means of bins";
inline constexpr std::string_view kTrimmedMean = "trimmed mean over calibration rounds";
inline constexpr std::string_view kTrimmedRatio = "ratio of trimmed means over calibration rounds";
inline constexpr std::string_view kRatioOfLimits = "ratio of two limits of the machine";
inline constexpr std::string_view kZTest = "two-sided z test";
inline constexpr std::string_view kG2Test = "likelihood-ratio test (G2)";
inline constexpr std::string_view kChi2Test = "chi-squared test within prompts";
}  // namespace estimator

std::span<const Metric> text_metrics();
std::span<const Metric> time_metrics();
std::span<const Metric> acceptance_metrics();
std::span<const Metric> bound_metrics();
std::span<const Metric> work_metrics();

/// Calls `visit` for each finished line of one repeat, with the index of its prompt.
void for_each_line(const CaseData& data, std::size_t repeat,
                   const std::function<void(std::size_t prompt, const LineRecord&)>& visit);
/// True when the predicate holds for some step of repeat 0.
bool any_step(const CaseData& data, const std::function<bool(const StepRecord&)>& predicate);
/// The acceptance rule of the case; null if this version does not know it.
const AcceptanceRule* recorded_rule(const CaseData& data);
/// True if the rule of the case judges whole paths (AcceptanceRule::judges_whole_paths). Such a case has no
/// alpha. False for a rule that this version does not know.
bool judges_whole_paths(const CaseData& data);
/// True if the strategy of the case drafts while the target verifies (StrategyInfo::drafts_ahead). False for
/// a strategy that this version does not know.
bool drafts_ahead(const CaseData& data);
/// True if the strategy of the case drafts with forwards of the target itself
/// (StrategyInfo::drafts_with_target). If it also has a draft model, the forwards of this model are only a
/// part of the time of a drafted token. False for a strategy that this version does not know.
bool drafts_on_target(const CaseData& data);
/// Depth of a draft: the length of a chain, or of the longest path of a tree.
std::size_t draft_depth(const StepRecord& step);
double emitted_tokens(const LineRecord& line);  ///< without the first token of each turn, which prefill gives
double step_count(const LineRecord& line);
std::size_t common_repeats(const CaseData& data);  ///< number of repeats that every finished prompt has
Work target_work(const CaseData& data);            ///< work of the target's decoding forwards in repeat 0
Work draft_work(const CaseData& data);             ///< work of the draft's forwards in decoding, in repeat 0
/// The names of the draft models in a case of config.json, in the order of the case.
std::vector<std::string> draft_names(const nlohmann::json& config);
/// draft_work() of each draft model of the case, in the same order. Empty if a record has no such counts.
std::vector<Work> work_by_draft(const CaseData& data);
double total_tokens(const CaseData& data);       ///< emitted tokens of repeat 0
double rows_fed_per_step(const CaseData& data);  ///< target rows per step in repeat 0; 0 without steps
/// The work of a step in units of rows with logits: the operations of a target forward of the case divided by
/// the operations per row of the reference. It is less than rows_fed_per_step() when steps feed rows whose
/// logits are not needed, such as rows of a lookahead window that only other rows attend to. It is equal to
/// rows_fed_per_step() without a reference or without counted work.
double row_equivalents(const CaseData& data);

nlohmann::json interval_json(const std::optional<stats::Interval>& interval);
/// sum(numerator) / sum(denominator) with an interval by a bootstrap over prompts. Both arguments are
/// [prompts].
MetricValue ratio_of_sums(const CaseData& data, const std::vector<double>& numerator,
                          const std::vector<double>& denominator);
/// The mean over all terms of all prompts of the case. `values` maps a prompt to the sum of its terms and to
/// their number. A prompt that `values` lacks has no terms.
MetricValue mean_of_prompts(const CaseData& data,
                            const std::map<std::string, std::pair<double, double>>& values);

}  // namespace speclab
