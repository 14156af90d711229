#include "core/measure/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/measure/clock.h"

namespace speclab {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "an unknown host";
}

std::string text_of(int file) {
  std::string text(4096, '\0');
  const ssize_t got = ::pread(file, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

/// Describes the holder of the lock. The holder writes its line right after it took the lock, so we wait a
/// moment for the line.
std::string holder(int file) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    const json line = json::parse(text_of(file), nullptr, false);
    if (line.is_object()) {
      const auto shown = [&](const char* key) {
        const auto found = line.find(key);
        return found == line.end() ? "?" : found->is_string() ? found->get<std::string>() : found->dump();
      };
      return fmt::format("process {} on {} since {}: {}", shown("pid"), shown("host"), shown("since"),
                         shown("command"));
    }
    ::usleep(10'000);
  }
  return "another process";
}

/// Whether the path still names the open file. The previous holder may have removed it.
bool is_at(int file, const fs::path& path) {
  struct stat open{}, there{};
  return ::fstat(file, &open) == 0 && ::lstat(path.c_str(), &there) == 0 && open.st_dev == there.st_dev &&
         open.st_ino == there.st_ino;
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder, const std::vector<std::string>& command_line)
    : path_(folder / "run.lock") {
  while (file_ < 0) {
    const int file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file < 0) fail_path(path_, errno, "a folder that can be written");
    if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
      const int code = errno;
      const std::string who = code == EWOULDBLOCK ? holder(file) : "";
      ::close(file);
      if (code != EWOULDBLOCK) fail_path(path_, code, "a file system with locks (flock)");
      throw Error({.what = folder.string(),
                   .got = "a folder into which another process writes, " + who,
                   .expected = "one writer at a time",
                   .advice = "Wait until it has ended, or choose another folder with --out."});
    }
    if (is_at(file, path_)) {
      file_ = file;
    } else {
      ::close(file);
    }
  }
  const json line = {{"pid", ::getpid()},
                     {"host", host_name()},
                     {"since", now_iso8601()},
                     {"command", fmt::format("{}", fmt::join(command_line, " "))}};
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  // The line is only for messages, so a failure here is ignored. A full disk is
  // reported when records are written.
  if (::ftruncate(file_, 0) != 0 || ::pwrite(file_, text.data(), text.size(), 0) < 0) return;
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

FolderLock::~FolderLock() {
  if (file_ < 0) return;
  ::unlink(path_.c_str());  // while locked, so a process that has opened the file sees that it is gone
  ::close(file_);
}

}  // namespace speclab
