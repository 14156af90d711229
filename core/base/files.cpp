#include "core/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/base/error.h"

namespace speclab {
namespace fs = std::filesystem;
namespace {

std::string advice_for(int code) {
  switch (code) {
    case ENOMEM: return "Free memory, or raise the limit of the shell (ulimit -v).";
    case EMFILE:
    case ENFILE: return "Close other files, or raise the limit of the shell (ulimit -n).";
    case ENAMETOOLONG: return "A name has at most 255 bytes, a whole path at most 4095.";
    default: return "Check the path and its permissions.";
  }
}

/// Closes a file descriptor when it goes out of scope.
struct Descriptor {
  int file;
  ~Descriptor() { ::close(file); }
};

}  // namespace

void fail_path(const fs::path& path, int code, std::string expected) {
  throw Error({.what = path.string(),
               .got = std::generic_category().message(code),
               .expected = std::move(expected),
               .advice = advice_for(code)});
}

bool path_exists(const fs::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  fail_path(path, errno, "a path that can be looked at");
}

std::vector<fs::path> folder_entries(const fs::path& folder) {
  std::vector<fs::path> found;
  if (!path_exists(folder)) return found;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    found.push_back(at->path());
  if (code) fail_path(folder, code.value(), "a folder that can be listed");
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> make_folders(const fs::path& folder) {
  std::vector<fs::path> missing;
  for (fs::path at = folder.lexically_normal(); !at.empty() && !path_exists(at); at = at.parent_path()) {
    if (at.has_filename()) missing.push_back(at);
    if (at == at.parent_path()) break;
  }
  std::reverse(missing.begin(), missing.end());
  std::error_code code;
  fs::create_directories(folder, code);
  if (!code && !fs::is_directory(folder, code) && !code)
    code = std::make_error_code(std::errc::not_a_directory);
  if (code) {
    std::error_code ignored;  // remove the folders that were made before the failure
    for (auto made = missing.rbegin(); made != missing.rend(); ++made) fs::remove(*made, ignored);
    throw Error({.what = "cannot make the folder " + folder.string(),
                 .got = code.message(),
                 .expected = "",
                 .advice = advice_for(code.value())});
  }
  return missing;
}

std::string read_whole_file(const fs::path& path, std::string_view expected) {
  const Descriptor in{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (in.file < 0) fail_path(path, errno, std::string(expected));
  std::string text;
  constexpr std::size_t kBlock = std::size_t{1} << 16;
  for (;;) {
    const std::size_t size = text.size();
    text.resize(size + kBlock);
    const ssize_t got = ::read(in.file, text.data() + size, kBlock);
    text.resize(size + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got == 0) return text;
    if (got < 0 && errno != EINTR) fail_path(path, errno, std::string(expected));
  }
}

}  // namespace speclab
