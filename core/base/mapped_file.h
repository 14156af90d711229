#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace speclab {

/// Maps a whole file into memory, read-only. The bytes keep their address when the object is moved. They stay
/// mapped until the object that owns them is destroyed or assigned to. If another process shortens the file,
/// reading the missing part raises SIGBUS; the signal handler asks path_at() for the file's name.
class MappedFile {
 public:
  /// Throws Error when the file is missing, not a regular file, or not readable. An empty file has no bytes.
  static MappedFile open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Throws Error when the file was shortened, lengthened or written to since it was opened. A new file under
  /// the same name is no error, because the mapping still shows the old file.
  void require_unchanged() const;

  /// Drops the pages from the process's memory. Reading them again fetches them from the system's page cache.
  void forget_pages() const;

  /// The path of the file that is mapped at this address. Null if no file is mapped there, or if 256 other
  /// files were mapped when that file was opened. Safe in signal handlers: no locks, no allocation.
  static const char* path_at(const void* address) noexcept;

  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile() = default;
  void release();

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  struct ::stat opened_ = {};
};

}  // namespace speclab
