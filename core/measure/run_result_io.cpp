#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/measure/run_result.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in || in.bad()) {
    throw Error(
        {.what = path.string(), .got = std::strerror(errno), .expected = "a readable file", .advice = ""});
  }
  return std::move(text).str();
}

[[noreturn]] void fail_write(const fs::path& path, int code) {
  std::string advice = "Choose another folder with --out.";
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
    advice = "Free some space and go on with --resume; finished lines are kept.";
  }
  throw Error({.what = "cannot write " + path.string(),
               .got = std::strerror(code),
               .expected = "",
               .advice = advice});
}

/// All bytes or errno.
int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// Bytes up to and with the last newline of a file of so many bytes, read from its end; or -1 and errno.
std::int64_t end_of_last_line(int file, std::int64_t size) {
  std::array<char, 4096> block;
  while (size > 0) {
    const std::int64_t begin = std::max<std::int64_t>(0, size - static_cast<std::int64_t>(block.size()));
    const ssize_t got = ::pread(file, block.data(), static_cast<std::size_t>(size - begin), begin);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got;  // 0: another process has shortened it
    const std::size_t newline = std::string_view(block.data(), static_cast<std::size_t>(got)).rfind('\n');
    if (newline != std::string_view::npos) return begin + static_cast<std::int64_t>(newline) + 1;
    size = begin;
  }
  return 0;
}

/// Calls visit(line text, line number) for each line that ends in a newline.
template <class Visit>
void for_each_line(const fs::path& path, Visit visit) {
  if (!fs::exists(path)) return;
  const std::string text = read_file(path);
  std::size_t begin = 0;
  for (int number = 1;; ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) return;  // a torn last line
    if (end > begin) visit(std::string_view(text).substr(begin, end - begin), number);
    begin = end + 1;
  }
}

}  // namespace

std::string case_file_name(std::string_view case_id) {
  std::string name;
  for (const char c : case_id) {
    if (c == '/') {
      name += "__";
    } else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("._=+,-", c) != nullptr) {
      name += c;
    } else {
      name += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return name + ".jsonl";
}

std::vector<nlohmann::json> read_json_lines(const fs::path& path) {
  std::vector<nlohmann::json> lines;
  for_each_line(path, [&](std::string_view text, int number) {
    lines.push_back(parse_json(text, path.string() + ": line " + std::to_string(number)));
  });
  return lines;
}

std::vector<LineRecord> read_case_file(const fs::path& path) {
  std::vector<LineRecord> lines;
  for_each_line(path, [&](std::string_view text, int number) {
    const std::string where = path.string() + ": line " + std::to_string(number);
    lines.push_back(line_from_json(parse_json(text, where), where));
  });
  return lines;
}

JsonLinesWriter::JsonLinesWriter(fs::path path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) fail_write(path_, errno);
  struct stat status {};
  if (::fstat(file_, &status) != 0) fail_write(path_, errno);
  size_ = end_of_last_line(file_, status.st_size);  // drops a torn last line
  if (size_ < 0 || ::ftruncate(file_, size_) != 0 || ::lseek(file_, size_, SEEK_SET) < 0) fail_write(path_, errno);
}

JsonLinesWriter::~JsonLinesWriter() {
  if (file_ >= 0) ::close(file_);
}

JsonLinesWriter::JsonLinesWriter(JsonLinesWriter&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), size_(other.size_) {}

void JsonLinesWriter::append(const nlohmann::json& line) {
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  if (const int code = write_all(file_, text); code != 0) {
    // Nothing half-written stays. When even that fails the reader still drops the torn line.
    if (::ftruncate(file_, size_) == 0) ::lseek(file_, size_, SEEK_SET);
    fail_write(path_, code);
  }
  size_ += static_cast<std::int64_t>(text.size());
}

void write_file(const fs::path& path, std::string_view text) {
  const fs::path beside = path.string() + ".part";
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail_write(path, errno);
  int code = write_all(file, text);
  if (::close(file) != 0 && code == 0) code = errno;
  if (code == 0 && ::rename(beside.c_str(), path.c_str()) != 0) code = errno;
  if (code != 0) {
    ::unlink(beside.c_str());
    fail_write(path, code);
  }
}

void write_json_file(const fs::path& path, const nlohmann::json& json) {
  write_file(path, json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

nlohmann::json read_json_file(const fs::path& path) {
  if (!fs::exists(path)) {
    throw Error({.what = path.string(), .got = "no such file", .expected = "a JSON file", .advice = ""});
  }
  return parse_json(read_file(path), path.string());
}

}  // namespace speclab
