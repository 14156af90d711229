#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace speclab {

/// Locks a folder for one writing process, with flock on FOLDER/run.lock. The file says who holds the lock.
/// The system releases the lock when the process ends, also after kill -9; a lock file that is left behind
/// does no harm. Readers need no lock.
class FolderLock {
 public:
  /// Throws Error when another process holds the lock; the error names the pid, host, start and command of
  /// that process if run.lock says them. Also throws Error when run.lock cannot be opened or locked.
  FolderLock(const std::filesystem::path& folder, const std::vector<std::string>& command_line);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock(const FolderLock&) = delete;

 private:
  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace speclab
