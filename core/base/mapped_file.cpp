#include "core/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace speclab {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int code, const char* expected) {
  throw Error({.what = path.string(),
               .got = std::generic_category().message(code),
               .expected = expected,
               .advice = "Check the path and its permissions."});
}

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(path, errno, "a readable file");
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    const int code = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    ::close(file);
    fail(path, code, "a regular file");
  }
  MappedFile mapped;
  mapped.path_ = path;
  mapped.size_ = static_cast<std::size_t>(status.st_size);
  if (mapped.size_ > 0) {
    void* data = ::mmap(nullptr, mapped.size_, PROT_READ, MAP_PRIVATE, file, 0);
    const int code = errno;
    if (data == MAP_FAILED) {
      ::close(file);
      fail(path, code, "a file that can be mapped into memory");
    }
    mapped.data_ = static_cast<const std::byte*>(data);
    ::madvise(data, mapped.size_, MADV_WILLNEED);  // only a hint: a failure changes nothing
  }
  ::close(file);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    release();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

MappedFile::~MappedFile() {
  release();
}

void MappedFile::release() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
  size_ = 0;
}

}  // namespace speclab
