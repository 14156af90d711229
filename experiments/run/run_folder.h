#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/measure/folder_lock.h"
#include "core/measure/run_result.h"

namespace speclab {

/// A run folder (results/SCHEMA.md) being written. Holds it for this process as long as the object lives.
class RunFolder {
 public:
  /// Takes the folder and checks all that can be checked before a model is loaded. A new run (`resume`
  /// false): makes the folder; throws Error when it holds a run or lines of one, or cannot be written. A run
  /// that goes on: throws Error when there is none, or it had another config. Throws Error when another
  /// process writes into it.
  RunFolder(const std::filesystem::path& path, bool resume, nlohmann::json config,
            const std::vector<std::string>& command_line);
  /// Removes the folders that it made, unless begin() was called.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;

  /// Before the first line. A new run: writes environment.json and config.json. A run that goes on: throws
  /// Error when it was made with another binary, machine, backend or model, because numbers of both would be
  /// mixed.
  void begin(const nlohmann::json& environment);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path case_file(const std::string& case_id) const { return find_case_file(path_, case_id); }

 private:
  void remove_made();
  std::filesystem::path path_;
  bool resume_;
  nlohmann::json config_;
  std::vector<std::filesystem::path> made_;  ///< folders that were not there, outermost first
  std::optional<FolderLock> lock_;
};

/// The folder around the runs of one config with several targets: holds it, writes targets.json or compares
/// it.
class TargetsFolder {
 public:
  /// Throws Error as RunFolder does.
  TargetsFolder(const std::filesystem::path& path, bool resume, const nlohmann::json& header,
                const std::vector<std::string>& command_line);

 private:
  std::optional<FolderLock> lock_;
};

/// What must be equal for two environments to give numbers that may stand side by side. Returns "name: a, b"
/// of each difference; `same_binary` false leaves the binary out (compare of two versions), `same_machine`
/// false all that changes times and no number that is free of noise.
std::vector<std::string> environment_differences(const nlohmann::json& a, const nlohmann::json& b,
                                                 bool same_binary, bool same_machine = true);

}  // namespace speclab
