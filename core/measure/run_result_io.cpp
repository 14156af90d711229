#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <system_error>
#include <tuple>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json_text.h"
#include "core/base/sha256.h"
#include "core/measure/run_result.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;

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

/// Writes all bytes. Returns 0, or errno.
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

/// Calls visit(text, line number) for each line that ends in a newline and is not empty.
template <class Visit>
void for_each_line(const fs::path& path, Visit visit) {
  if (!path_exists(path)) return;
  const std::string text = read_whole_file(path);
  std::size_t begin = 0;
  for (int number = 1;; ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) return;  // what follows the last newline is not a finished line
    if (end > begin) visit(std::string_view(text).substr(begin, end - begin), number);
    begin = end + 1;
  }
}

}  // namespace

namespace {

std::string escaped(char c) { return fmt::format("%{:02X}", static_cast<unsigned char>(c)); }

/// Makes a file name of a case id: a slash becomes "__", and bytes that are not plain become %XX. With
/// `injective`, an underscore that could be read as part of the "__" of a slash becomes %5F.
std::string file_stem(std::string_view id, bool injective) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._=+,-";
  const auto joins = [&](std::size_t i) { return i < id.size() && (id[i] == '_' || id[i] == '/'); };
  std::string name;
  for (std::size_t i = 0; i < id.size(); ++i) {
    const bool unclear = injective && id[i] == '_' && ((i > 0 && joins(i - 1)) || joins(i + 1));
    if (id[i] == '/') {
      name += "__";
    } else {
      name += !unclear && kPlain.find(id[i]) != kPlain.npos ? std::string(1, id[i]) : escaped(id[i]);
    }
  }
  return name;
}

}  // namespace

std::string case_file_name(std::string_view case_id) {
  constexpr std::size_t kMostBytes = 255, kKept = 200, kDigits = 32;
  constexpr std::string_view kExtension = ".jsonl";
  std::string name = file_stem(case_id, true);
  if (name.size() + kExtension.size() > kMostBytes)
    name = name.substr(0, kKept) + "~" + sha256_hex(case_id).substr(0, kDigits);
  return name.append(kExtension);
}

fs::path find_case_file(const fs::path& folder, const std::string& case_id) {
  const fs::path path = folder / "cases" / case_file_name(case_id);
  const std::string older = file_stem(case_id, false) + ".jsonl";
  if (older == path.filename() || older.size() > 255 || path_exists(path)) return path;
  // The older name may now belong to another case. The first line of the file says which case it is.
  for (const nlohmann::json& line : read_json_lines(folder / "cases" / older)) {
    if (line.is_object() && line.value("case", nlohmann::json()) == case_id) return folder / "cases" / older;
    break;
  }
  return path;
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

std::vector<LineRecord> read_case_lines(const fs::path& folder, const std::string& case_id) {
  const fs::path path = find_case_file(folder, case_id);
  std::vector<LineRecord> lines;
  std::map<std::tuple<std::string, std::uint64_t, int>, int> numbers;  // line number of each key
  for_each_line(path, [&](std::string_view text, int number) {
    const std::string where = path.string() + ": line " + std::to_string(number);
    LineRecord line = line_from_json(parse_json(text, where), where);
    if (line.case_id != case_id) {
      throw Error({.what = where + ": case",
                   .got = line.case_id,
                   .expected = case_id + ", the case of this file",
                   .advice = "Move the line to the file of its case, or delete it."});
    }
    const auto [first, is_new] = numbers.try_emplace({line.prompt, line.seed, line.repeat}, number);
    if (!is_new) {
      throw Error({.what = where,
                   .got = fmt::format("prompt {}, seed {}, repeat {} again, as in line {}", line.prompt,
                                      line.seed, line.repeat, first->second),
                   .expected = "one line for each prompt, seed and repeat",
                   .advice = "Delete one of the two."});
    }
    lines.push_back(std::move(line));
  });
  return lines;
}

namespace {

/// Number of bytes up to and including the last newline. Searches from the end, because a file may be large
/// but a line seldom is.
std::int64_t finished_bytes(int file, const fs::path& path) {
  std::int64_t end = ::lseek(file, 0, SEEK_END);
  std::string block(std::size_t{1} << 16, '\0');
  while (end > 0) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - static_cast<std::int64_t>(block.size()));
    const ssize_t got = ::pread(file, block.data(), static_cast<std::size_t>(end - begin), begin);
    if (got < 0 && errno == EINTR) continue;
    if (got != end - begin) fail_path(path, got < 0 ? errno : EIO, "a file that can be read and written");
    const std::size_t newline = block.rfind('\n', static_cast<std::size_t>(got) - 1);
    if (newline != block.npos) return begin + static_cast<std::int64_t>(newline) + 1;
    end = begin;
  }
  return 0;
}

}  // namespace

JsonLinesWriter::JsonLinesWriter(fs::path path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) fail_write(path_, errno);
  try {
    size_ = finished_bytes(file_, path_);
    // Removes what follows the last newline: a line that was not written completely.
    if (::ftruncate(file_, size_) != 0) fail_write(path_, errno);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

JsonLinesWriter::~JsonLinesWriter() {
  if (file_ >= 0) ::close(file_);
}

JsonLinesWriter::JsonLinesWriter(JsonLinesWriter&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), size_(other.size_) {}

void JsonLinesWriter::append(const nlohmann::json& line) {
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  if (const int code = write_all(file_, text); code != 0) {
    // Removes the half-written line. If that fails too, readers still drop the torn line.
    if (::ftruncate(file_, size_) != 0) fail_write(path_, code);
    fail_write(path_, code);
  }
  size_ += static_cast<std::int64_t>(text.size());
}

void write_file(const fs::path& path, std::string_view text) {
  struct stat status{};
  const bool replaces = ::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode);
  // A symbolic link stays. The file that it points to is replaced.
  std::error_code is_new;
  const fs::path real = replaces ? fs::canonical(path, is_new) : fs::path();
  const fs::path place = !replaces || is_new ? path : real;
  fs::path written = place;
  if (replaces) written.replace_filename(place.filename().string().substr(0, 200) + ".part");
  const int file = ::open(written.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail_write(path, errno);
  int code = write_all(file, text);
  if (::close(file) != 0 && code == 0) code = errno;
  if (!replaces) {
    if (code != 0) fail_write(path, code);
    return;
  }
  if (code == 0 && ::rename(written.c_str(), place.c_str()) != 0) code = errno;
  if (code != 0) {
    ::unlink(written.c_str());
    fail_write(path, code);
  }
}

void write_json_file(const fs::path& path, const nlohmann::json& json) {
  write_file(path, json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

nlohmann::json read_json_file(const fs::path& path) {
  return parse_json(read_whole_file(path, "a JSON file"), path.string());
}

}  // namespace speclab
