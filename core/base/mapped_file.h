#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace speclab {

/// A whole file mapped read-only. The bytes stay where they are when the object is moved, and until it is
/// destroyed. A file that another process shortens meanwhile cannot be guarded against (SIGBUS).
class MappedFile {
 public:
  /// Throws Error when the file is missing, not a regular file, or not readable. An empty file has no bytes.
  static MappedFile open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile() = default;
  void release();

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace speclab
