#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/measure/folder_lock.h"
#include "core/measure/run_result.h"

namespace speclab {

/// A run folder (results/SCHEMA.md) that this process writes. The folder is locked as long as the object
/// lives.
class RunFolder {
 public:
  /// Locks the folder and checks everything that can be checked before a model is loaded.
  /// For a new run (`resume` false), makes the folder, and throws Error when the folder holds a run or lines
  /// of a run, or cannot be written. For a resumed run, throws Error when the folder holds no run or a run
  /// with another config, or when its cases/ cannot be written. For both, throws Error when the path is too
  /// long, and when another process writes into the folder.
  RunFolder(const std::filesystem::path& path, bool resume, nlohmann::json config,
            const std::vector<std::string>& command_line);
  /// Removes the folders that the constructor made, unless begin() was called.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;

  /// Call this before the first line. A new run writes environment.json and config.json. For a resumed run,
  /// throws Error when the run was begun with another binary, CPU, backend, device, numerics class, number of
  /// threads or model, because the record would then mix the numbers of two environments.
  void begin(const nlohmann::json& environment);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path case_file(const std::string& case_id) const { return find_case_file(path_, case_id); }

 private:
  void remove_made();
  std::filesystem::path path_;
  bool resume_;
  nlohmann::json config_;
  std::vector<std::filesystem::path> made_;  ///< folders that the constructor made, outermost first
  std::optional<FolderLock> lock_;
};

/// The folder around the runs of one config with several targets. This class locks the folder as RunFolder
/// does.
class TargetsFolder {
 public:
  /// For a new run, writes `header` to targets.json. Throws Error when a new run finds a targets.json, when a
  /// resumed run finds none or another header, and when another process writes into the folder.
  TargetsFolder(const std::filesystem::path& path, bool resume, const nlohmann::json& header,
                const std::vector<std::string>& command_line);

 private:
  std::optional<FolderLock> lock_;
};

/// A place where two JSON values differ, and a short text of each value there ("nothing" where there is
/// none).
struct JsonDifference {
  std::string where, a, b;
};
/// The first difference between two config.json; absent when there is none. The name of the config's file is
/// not compared, because "a.json" and "./a.json" are the same file.
std::optional<JsonDifference> config_difference(const nlohmann::json& a, const nlohmann::json& b);

/// Compares what must be equal in two environments for their numbers to be comparable. Returns "name: a, b"
/// for each difference. `same_binary` false ignores the binary (to compare two versions). `same_machine`
/// false ignores what changes times only: CPU, backend, device and threads.
std::vector<std::string> environment_differences(const nlohmann::json& a, const nlohmann::json& b,
                                                 bool same_binary, bool same_machine = true);

}  // namespace speclab
