#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/base/files.h"

namespace speclab::toy {

/// A folder under the system's temporary directory; the destructor removes it. The constructor throws Error
/// if the folder cannot be made. A checkpoint maps its files into memory, and a mapping stays valid after its
/// file is removed. So a model can be opened from such a folder.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code code;
    const std::filesystem::path parent = std::filesystem::temp_directory_path(code);
    if (code) fail_path("the temporary directory", code.value(), "a folder for temporary files (TMPDIR)");
    std::string name = (parent / "speclab-toy-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail_path(name, errno, "a new folder for temporary files");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace speclab::toy
