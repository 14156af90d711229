#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace speclab {

/// summary.json (results/SCHEMA.md), computed from the raw record of a run folder alone; a run that is not
/// complete gives what its finished lines give. Throws Error when the folder holds no run.
nlohmann::json summarise_run(const std::filesystem::path& folder);

}  // namespace speclab
