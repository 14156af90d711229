#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace speclab {

// Reads the JSON files of a run folder and checks their fields against results/SCHEMA.md, so that later code
// need not check them. Each function throws Error when the file is missing or not JSON, or when a field is
// missing or has another type or value than it must have. The Error names the file and the field.

/// Reads config.json. Every field that the code cannot do without must be there.
nlohmann::json read_run_config(const std::filesystem::path& folder);
/// Reads environment.json. Fields may be missing, but present ones must have the right type.
nlohmann::json read_run_environment(const std::filesystem::path& folder);
/// Reads summary.json. Every field that tables and reports need must be there. If a case lacks an optional
/// field, the field is added with an empty value.
nlohmann::json read_run_summary(const std::filesystem::path& folder);

}  // namespace speclab
