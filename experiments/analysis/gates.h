#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace speclab {

/// What two runs of one version must have in common exactly, however fast the machine was: continuous
/// integration can hold a new version against a committed record. Names: tau, alpha, rows, calls.

/// Names with commas between them. Throws Error for an unknown name.
std::vector<std::string> parse_gates(const std::string& text);

/// One metric of a gate in both runs. Counts are totals over all prompts and seeds of one repeat.
struct GateResult {
  std::string gate, metric;
  nlohmann::json base, fresh;  ///< null where the metric does not apply
  std::string change;          ///< "equal", "better", "worse"; "changed" where one of both is null
};

/// Both are "metrics" of a summary. Absent when one of them lacks a metric of the gates: an older version
/// wrote it.
std::optional<std::vector<GateResult>> compare_gates(const std::vector<std::string>& gates,
                                                     const nlohmann::json& base, const nlohmann::json& fresh);

}  // namespace speclab
