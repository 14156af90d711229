#include "experiments/run/run_folder.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/utf8.h"
#include "experiments/metrics/record_files.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string short_text(const json& value) {
  return printable(value.dump(-1, ' ', false, json::error_handler_t::replace), 57);
}

/// The config without the name of its file.
json without_place(json config) {
  if (config.is_object()) config.erase("file");
  return config;
}

}  // namespace

std::optional<JsonDifference> config_difference(const json& one, const json& other) {
  const json a = without_place(one), b = without_place(other);
  const json patch = json::diff(a, b);
  if (patch.empty()) return std::nullopt;
  const json& change = patch[0];
  json::json_pointer at(change["path"].get<std::string>());
  const bool added = change["op"] == "add", removed = change["op"] == "remove";
  JsonDifference out{.where = "",
                     .a = added ? "nothing" : short_text(a[at]),
                     .b = removed ? "nothing" : short_text(change["value"])};
  if (added && at.back() == "-") {  // the place after the last entry of a list
    at.pop_back();
    at.push_back(std::to_string(a[at].size()));
  }
  out.where = at.to_string();
  return out;
}

std::vector<std::string> environment_differences(const json& a, const json& b, bool same_binary,
                                                 bool same_machine) {
  std::vector<const char*> names = {"/numerics"};
  if (same_machine) names.insert(names.end(), {"/cpu/model", "/backend", "/device", "/threads"});
  if (same_binary) names.push_back("/binary_sha256");
  std::vector<std::string> found;
  const auto compare = [&](const std::string& name, const json& x, const json& y) {
    if (x != y) found.push_back(fmt::format("{}: {}, {}", name, short_text(x), short_text(y)));
  };
  for (const char* name : names) {
    const json::json_pointer at(name);
    compare(std::string(name + 1), a.value(at, json()), b.value(at, json()));
  }
  const json models_a = a.value("models", json::object()), models_b = b.value("models", json::object());
  for (const auto& [role, model] : models_a.items()) {
    if (models_b.contains(role))
      compare("model " + role, model.value("sha256", json()), models_b[role].value("sha256", json()));
  }
  return found;
}

namespace {

/// Length of the longest path below a run folder: "/cases/" and the name of a case's file.
constexpr std::size_t kMostBytesBelow = 7 + 255;

void require_short_path(const fs::path& path) {
  if (path.native().size() + kMostBytesBelow < PATH_MAX) return;
  throw Error({.what = "--out",
               .got = fmt::format("a path of {} bytes", path.native().size()),
               .expected = fmt::format("at most {} bytes, because a file in a run folder needs {} more",
                                       PATH_MAX - kMostBytesBelow - 1, kMostBytesBelow),
               .advice = "Change to a folder near the run's folder, and give --out a relative path."});
}

/// Throws Error when the folder holds lines that a new run would take for its own.
void require_no_lines(const fs::path& path) {
  std::vector<fs::path> found = folder_entries(path / "cases");
  for (const char* name : {"calibration.jsonl", "teacher.jsonl", "bounds.jsonl"}) {
    if (path_exists(path / name)) found.push_back(path / name);
  }
  if (found.empty()) return;
  throw Error({.what = path.string(),
               .got = fmt::format("no config.json, but {} of another run",
                                  found.front().lexically_relative(path).string()),
               .expected = "a new folder",
               .advice = "Choose another one with --out, or move those files away."});
}

void require_same_config(const fs::path& path, const json& config) {
  const json old = read_json_file(path / "config.json");
  const auto difference = config_difference(old, config);
  if (!difference) return;
  throw Error({.what = "--resume " + path.string(),
               .got = fmt::format("another config, {}: it was {}, now it is {}", difference->where,
                                  difference->a, difference->b),
               .expected = "the config of that run",
               .advice = "Start a new run with another --out."});
}

void require_writable(const fs::path& folder) {
  if (path_exists(folder) && ::access(folder.c_str(), W_OK | X_OK) != 0)
    fail_path(folder, errno, "a folder that can be written");
}

}  // namespace

RunFolder::RunFolder(const fs::path& path, bool resume, json config,
                     const std::vector<std::string>& command_line)
    : path_(path), resume_(resume), config_(std::move(config)) {
  require_short_path(path);
  if (resume && !path_exists(path / "config.json")) {
    throw Error({.what = path.string(),
                 .got = "no run",
                 .expected = "the folder of a run to resume",
                 .advice = "Leave --resume out to start one."});
  }
  try {
    made_ = make_folders(path);
    lock_.emplace(path, command_line);
    if (resume) {
      require_same_config(path, config_);
      require_writable(path / "cases");
      return;
    }
    if (path_exists(path / "config.json")) {
      throw Error({.what = path.string(),
                   .got = "a run already",
                   .expected = "a new folder",
                   .advice = "Go on with --resume, or choose another one with --out."});
    }
    require_no_lines(path);
  } catch (...) {
    remove_made();
    throw;
  }
}

RunFolder::~RunFolder() { remove_made(); }

void RunFolder::remove_made() {
  lock_.reset();
  std::error_code ignored;  // a folder that is no longer empty stays
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) fs::remove(*folder, ignored);
}

void RunFolder::begin(const json& environment) {
  if (resume_) {
    const std::vector<std::string> differences =
        environment_differences(read_run_environment(path_), environment, true);
    if (!differences.empty()) {
      throw Error({.what = "--resume " + path_.string(),
                   .got = "a difference in " + differences.front(),
                   .expected = "the same binary, machine, backend and models",
                   .advice = "Start a new run with another --out."});
    }
  }
  make_folders(path_ / "cases");
  if (!resume_) {
    write_json_file(path_ / "environment.json", environment);
    write_json_file(path_ / "config.json", config_);  // last, because a folder with a config counts as a run
  }
  made_.clear();
}

TargetsFolder::TargetsFolder(const fs::path& path, bool resume, const json& header,
                             const std::vector<std::string>& command_line) {
  const fs::path file = path / "targets.json";
  const auto refuse = [&](const char* got) {
    throw Error({.what = file.string(),
                 .got = got,
                 .expected = resume ? "a run of these targets" : "a new folder",
                 .advice = "Name another folder with --out."});
  };
  if (resume && !path_exists(file)) refuse("no run");
  make_folders(path);
  lock_.emplace(path, command_line);
  if (!resume && path_exists(file)) refuse("a run already");
  if (resume && read_json_file(file) != header) refuse("other targets");
  if (!resume) write_json_file(file, header);
}

}  // namespace speclab
