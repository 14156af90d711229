#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace speclab {

/// A whole file mapped read-only. The bytes stay where they are when the object is moved, and until it is
/// destroyed. Reading what another process has cut off meanwhile is a SIGBUS; a handler asks path_at which
/// file it was.
class MappedFile {
 public:
  /// Throws Error when the file is missing, not a regular file, or not readable. An empty file has no bytes.
  static MappedFile open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Throws Error when the file is no longer as it was opened: shortened, lengthened or written to. A new
  /// file under its name is none of our business, the mapping keeps the old one.
  void require_unchanged() const;

  /// Takes the pages that were read out of the process's memory; who reads them again gets them from the
  /// system's cache.
  void forget_pages() const;

  /// The path of the file that is mapped at this address, or null. For signal handlers: no locks, no
  /// allocation.
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
