#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// A value and its 95 % interval, both JSON; null when the metric does not apply.
struct MetricValue {
  nlohmann::json value;
  nlohmann::json ci95;  ///< null: none
};

enum class Better { higher, lower, neither };
std::string_view to_string(Better better);

/// One metric: everything that report, comparison and documentation need to know. Computed from raw records
/// only.
struct Metric {
  std::string_view name;
  std::string_view unit;
  std::string_view description;
  Better better;
  bool timed;  ///< null for a case that lost equality with its reference: no number without a check; and for
               ///< one whose steps were divided over devices: see lookahead_devices
  MetricValue (*compute)(const CaseData&);
};

/// The one table, in the order of results/SCHEMA.md.
std::span<const Metric> metrics();
/// All of them for one case, or those that are named: a flat map with X and, where it is an estimate, X_ci95.
nlohmann::json compute_metrics(const CaseData& data, std::initializer_list<std::string_view> names = {});

}  // namespace speclab
