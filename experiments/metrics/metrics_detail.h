#pragma once

#include <functional>
#include <optional>

#include "experiments/metrics/metrics.h"

/// Shared by the files of the metric table.
namespace speclab {

inline constexpr Better kHigh = Better::higher, kLow = Better::lower, kNone = Better::neither;

std::span<const Metric> text_metrics();
std::span<const Metric> time_metrics();
std::span<const Metric> acceptance_metrics();
std::span<const Metric> work_metrics();

/// Adds up over steps, lines of repeat 0, or whatever: calls visit for each finished line of repeat `repeat`.
void for_each_line(const CaseData& data, std::size_t repeat,
                   const std::function<void(std::size_t prompt, const LineRecord&)>& visit);
double emitted_tokens(const LineRecord& line);  ///< without those from prefill
double step_count(const LineRecord& line);
std::size_t common_repeats(const CaseData& data);  ///< that every finished prompt has
Work target_work(const CaseData& data);            ///< decoding, repeat 0
Work draft_work(const CaseData& data);
double total_tokens(const CaseData& data);       ///< repeat 0
double rows_fed_per_step(const CaseData& data);  ///< repeat 0; 0 without steps
/// Rows with logits that are as much work as a step: its operations over those of a step of the reference.
/// Where a step feeds rows whose logits nobody wants (relays of a lookahead window) it is less than the rows
/// fed. Those, where there is no reference or work was not counted.
double row_equivalents(const CaseData& data);

nlohmann::json interval_json(const std::optional<stats::Interval>& interval);
/// Bootstrap over prompts of sum(numerator) / sum(denominator); both [prompts].
MetricValue ratio_of_sums(const CaseData& data, const std::vector<double>& numerator,
                          const std::vector<double>& denominator);

}  // namespace speclab
