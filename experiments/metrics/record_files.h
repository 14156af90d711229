#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace speclab {

// The JSON files of a run folder, read and held against what results/SCHEMA.md says of their fields. Each
// throws Error that names the file and the field when it is missing, is no JSON, or a field that is read
// later has another type.

/// config.json: every field that the code reads is there.
nlohmann::json read_run_config(const std::filesystem::path& folder);
/// environment.json: fields may be missing, but those that are there have their type.
nlohmann::json read_run_environment(const std::filesystem::path& folder);
/// summary.json: what tables and reports show is there.
nlohmann::json read_run_summary(const std::filesystem::path& folder);

}  // namespace speclab
