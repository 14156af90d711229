#include "core/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/utf8.h"

namespace speclab {
namespace {

/// One entry of the table of mappings, which signal handlers read. When the table is full, further mappings
/// have no entry and path_at() does not know them.
struct Place {
  std::atomic<std::uintptr_t> begin{0};  // 0: free, 1: taken, not yet filled in
  std::atomic<std::size_t> size{0};
  char path[512];
};
std::array<Place, 256> places;

void remember(const void* data, std::size_t size, const std::string& any_path) {
  // The name may come from an untrusted file, such as the index of a checkpoint.
  const std::string path = printable(any_path, sizeof Place::path - 1);
  for (Place& place : places) {
    std::uintptr_t none = 0;
    if (!place.begin.compare_exchange_strong(none, 1)) continue;
    place.path[path.copy(place.path, sizeof place.path - 1)] = '\0';
    place.size.store(size);
    place.begin.store(reinterpret_cast<std::uintptr_t>(data));
    return;
  }
}

void forget(const void* data) {
  for (Place& place : places) {
    std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(data);
    if (place.begin.compare_exchange_strong(begin, 0)) return;
  }
}

}  // namespace

const char* MappedFile::path_at(const void* address) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const Place& place : places) {
    const std::uintptr_t begin = place.begin.load();
    // The signal gives the address of a byte, which may lie in the last page of the mapping but past the end
    // of the file. So the size is rounded up to a multiple of 64 KiB, which is a multiple of the page size.
    if (begin > 1 && at >= begin && at - begin < (place.size.load() + 65'535) / 65'536 * 65'536)
      return place.path;
  }
  return nullptr;
}

void MappedFile::require_unchanged() const {
  struct stat now{};
  if (::stat(path_.c_str(), &now) != 0 || now.st_dev != opened_.st_dev || now.st_ino != opened_.st_ino)
    return;
  const bool same_time =
      now.st_mtim.tv_sec == opened_.st_mtim.tv_sec && now.st_mtim.tv_nsec == opened_.st_mtim.tv_nsec;
  if (now.st_size == opened_.st_size && same_time) return;
  throw Error(
      {.what = path_.string(),
       .got = now.st_size != opened_.st_size ? fmt::format("{} bytes now", now.st_size) : "changed contents",
       .expected = fmt::format("the {} bytes that were opened", opened_.st_size),
       .advice = "Another program writes to the file; wait until it is done, then try again."});
}

void MappedFile::forget_pages() const {
  if (size_ > 0)
    ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);  // only a hint: a failure changes nothing
}

MappedFile MappedFile::open(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer before we can see that it is a pipe.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail_path(path, errno, "a readable file");
  struct stat status{};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    const int code = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    ::close(file);
    fail_path(path, code, "a regular file");
  }
  MappedFile mapped;
  mapped.path_ = path;
  mapped.opened_ = status;
  mapped.size_ = static_cast<std::size_t>(status.st_size);
  if (mapped.size_ > 0) {
    void* data = ::mmap(nullptr, mapped.size_, PROT_READ, MAP_PRIVATE, file, 0);
    const int code = errno;
    if (data == MAP_FAILED) {
      ::close(file);
      fail_path(path, code, "a file that can be mapped into memory");
    }
    mapped.data_ = static_cast<const std::byte*>(data);
    remember(data, mapped.size_, path.string());
    ::madvise(data, mapped.size_, MADV_WILLNEED);  // only a hint: a failure changes nothing
  }
  ::close(file);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      opened_(other.opened_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    release();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    opened_ = other.opened_;
  }
  return *this;
}

MappedFile::~MappedFile() { release(); }

void MappedFile::release() {
  if (data_ != nullptr) {
    forget(data_);
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
  data_ = nullptr;
  size_ = 0;
}

}  // namespace speclab
