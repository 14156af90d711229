#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace speclab {

/// Holds a folder for one writing process: a lock (flock) on FOLDER/run.lock, which says who holds it. The
/// system releases the lock when the process ends, also after kill -9; a file that stays behind then does no
/// harm. Readers need no lock.
class FolderLock {
 public:
  /// Throws Error when another process holds the folder (pid, host, since when, command), and when the file
  /// cannot be written.
  FolderLock(const std::filesystem::path& folder, const std::vector<std::string>& command_line);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock(const FolderLock&) = delete;

 private:
  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace speclab
