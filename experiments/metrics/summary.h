#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace speclab {

/// Computes summary.json (results/SCHEMA.md) from the raw record of a run folder alone. For an incomplete run
/// it uses the finished lines. Throws Error when the folder holds no run or a damaged one.
nlohmann::json summarise_run(const std::filesystem::path& folder);

/// Formats summary.json. Each key has a line of its own, and so has each case, so that a diff shows what
/// changed.
std::string summary_text(const nlohmann::json& summary);

/// The summary of a run and where it comes from.
struct RunSummary {
  nlohmann::json summary;
  bool stored = false;  ///< true: read from summary.json, because the folder has no lines
};
/// Computes the summary from the lines of a run. A folder that was kept without lines (no cases/, such as
/// results/baselines/*) gives its stored summary. Never writes. Throws Error when the folder has neither a
/// run nor a stored summary, or when they are damaged.
RunSummary read_summary(const std::filesystem::path& folder);

}  // namespace speclab
