#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/model/files/stored_tensor.h"

/// Helpers of the entry points.
namespace speclab::fuzz {

inline void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

/// A file in memory without a name.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : file_(::memfd_create("input", MFD_CLOEXEC)) {
    require(file_ >= 0, "memfd_create");
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t written = ::write(file_, bytes.data() + at, bytes.size() - at);
      require(written > 0, "write");
      at += static_cast<std::size_t>(written);
    }
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

/// A folder of this process, in memory (/dev/shm) if the system has that.
inline const std::filesystem::path& scratch_folder() {
  struct Folder {
    std::filesystem::path path;
    Folder() {
      const std::filesystem::path memory = "/dev/shm";
      path = (std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path()) /
             ("speclab-fuzz-" + std::to_string(::getpid()));
      std::filesystem::create_directories(path);
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

inline void write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  require(static_cast<bool>(file.flush()), "write");
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Reads every byte, so that the sanitizer sees bytes outside the file.
inline void touch(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte byte : bytes) sum += static_cast<unsigned>(byte);
  volatile unsigned keep = sum;
  static_cast<void>(keep);
}

inline void touch_all(const std::vector<StoredTensor>& tensors) {
  for (const StoredTensor& tensor : tensors) {
    require(!tensor.type_name.empty(), "a tensor without a type");
    touch(tensor.data);
  }
}

/// True if the input was accepted, false for an Error. Other exceptions pass through.
template <typename Action>
bool accepted(const Action& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    require(!error.text().what.empty(), "an error that does not say what is wrong");
    touch(bytes_of(nlohmann::json(error.what())
                       .dump()));  // throws if it is not UTF-8, because then no record could hold it
    return false;
  }
}

}  // namespace speclab::fuzz
