#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/measure/run_result.h"

namespace speclab {

/// A run folder (results/SCHEMA.md) being written.
class RunFolder {
 public:
  /// Makes a new folder with config.json and environment.json. Throws Error when it holds a run already or
  /// cannot be written.
  static RunFolder create(const std::filesystem::path& path, const nlohmann::json& config,
                          const nlohmann::json& environment);
  /// Goes on in a folder. Throws Error when its run had another config, binary, machine, backend or model:
  /// numbers of both would be mixed.
  static RunFolder resume(const std::filesystem::path& path, const nlohmann::json& config,
                          const nlohmann::json& environment);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path case_file(const std::string& case_id) const {
    return path_ / "cases" / case_file_name(case_id);
  }

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

/// What must be equal for two environments to give numbers that may stand side by side. Returns "name: a, b"
/// of each difference; `same_binary` false leaves the binary out (compare of two versions), `same_machine` false
/// all that changes times and no number that is free of noise.
std::vector<std::string> environment_differences(const nlohmann::json& a, const nlohmann::json& b,
                                                 bool same_binary, bool same_machine = true);

}  // namespace speclab
