#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// The value of a metric and its 95 % interval as JSON.
struct MetricValue {
  nlohmann::json value;  ///< null when the metric does not apply
  nlohmann::json ci95;   ///< null when there is no interval
};

enum class Better { higher, lower, neither };
std::string_view to_string(Better better);

/// One metric, with all that a report, a comparison or the documentation needs to know about it. The value of
/// a metric is computed from raw records alone.
struct Metric {
  std::string_view name;
  std::string_view unit;
  std::string_view description;
  /// How the value is estimated from the record, such as "censored maximum likelihood" or "count". One of the
  /// names of namespace estimator (metrics_detail.h), which results/SCHEMA.md explains.
  std::string_view estimator;
  Better better;
  /// True for a metric of time. Such a metric is null for a case that differs from its reference although
  /// equality is promised, and if the repeats of the reference differ. It is also null for a case whose steps
  /// were divided over devices. The times of such a case are in the entry "lookahead_devices" of the summary
  /// (experiments/analysis/lookahead_devices.h).
  bool timed;
  MetricValue (*compute)(const CaseData&);
};

/// The table of all metrics: first the metrics of the text, then of time, acceptance, bounds and work.
std::span<const Metric> metrics();
/// Computes the named metrics of a case, or all of them. The result is a flat map. It has X for each metric,
/// and X_ci95 if an interval was computed. If X is an array, X_ci95 has the same places. If X is a map,
/// X_ci95 has the same keys, without those of null values.
nlohmann::json compute_metrics(const CaseData& data, std::initializer_list<std::string_view> names = {});

}  // namespace speclab
