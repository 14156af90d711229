// Preloaded by a test (LD_PRELOAD): reads of a file whose name ends with "failing.jsonl" give a few bytes at
// a time and then fail, as those of a broken disk do.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>

extern "C" ssize_t read(int file, void* data, size_t size) {
  static const auto real = reinterpret_cast<ssize_t (*)(int, void*, size_t)>(dlsym(RTLD_NEXT, "read"));
  static size_t given = 0;
  constexpr size_t kBlock = 16, kGood = 48;
  char name[4096];
  const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), name, sizeof name);
  if (length <= 0 || !std::string_view(name, static_cast<size_t>(length)).ends_with("failing.jsonl"))
    return real(file, data, size);
  if (given >= kGood) {
    errno = EIO;
    return -1;
  }
  const ssize_t got = real(file, data, std::min(size, kBlock));
  if (got > 0) given += static_cast<size_t>(got);
  return got;
}
