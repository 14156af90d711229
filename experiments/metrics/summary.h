#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace speclab {

/// summary.json (results/SCHEMA.md), computed from the raw record of a run folder alone; a run that is not
/// complete gives what its finished lines give. Throws Error when the folder holds no run.
nlohmann::json summarise_run(const std::filesystem::path& folder);

/// The text of summary.json: each key on a line of its own, and each case on one, so that a change shows in a
/// diff.
std::string summary_text(const nlohmann::json& summary);

/// What a run says: the summary computed now from its lines, or, of a folder that was kept without them (no
/// cases/, such as results/baselines/*), the stored one. Never writes. Throws Error when the folder has
/// neither.
struct RunSummary {
  nlohmann::json summary;
  bool stored = false;  ///< there are no lines; summary.json as it is
};
RunSummary read_summary(const std::filesystem::path& folder);

}  // namespace speclab
