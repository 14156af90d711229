#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace speclab {

/// Gates compare counts that do not depend on the speed of the machine. Continuous integration uses them to
/// compare a new version exactly with a committed record. The gates are tau, alpha, rows and calls.

/// Reads names separated by commas. Throws Error for an unknown name, and when there is no name.
std::vector<std::string> parse_gates(const std::string& text);

/// One metric of a gate in both runs. Counts are totals over all prompts and seeds of one repeat.
struct GateResult {
  std::string gate, metric;
  nlohmann::json base, fresh;  ///< null when the metric does not apply
  std::string change;          ///< "equal", "better", "worse"; "changed": one value is null, or the totals
                               ///< differ but the counts per token are equal
};

/// Compares the gates of two cases. `base` and `fresh` are "metrics" of a summary. Absent when one of them
/// lacks a metric of the gates, because an older version wrote it.
std::optional<std::vector<GateResult>> compare_gates(const std::vector<std::string>& gates,
                                                     const nlohmann::json& base, const nlohmann::json& fresh);

}  // namespace speclab
