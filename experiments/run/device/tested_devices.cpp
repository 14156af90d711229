#include "experiments/run/device/tested_devices.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/sha256.h"
#include "core/measure/clock.h"
#include "core/measure/run_result.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::optional<fs::path> cache_folder() {
  // A relative path in XDG_CACHE_HOME counts as absent (XDG Base Directory Specification).
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "speclab";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return fs::path(home) / ".cache" / "speclab";
  return std::nullopt;
}

json fields_of(const TestedDevice& tested) {
  return {{"binary_sha256", tested.binary_sha256},
          {"device", tested.device},
          {"unit", tested.unit},
          {"driver", tested.driver},
          {"numerics", tested.numerics},
          {"kernels", tested.kernels}};
}

}  // namespace

std::string unit_of(const DeviceStatus* status, int number) {
  const std::string uuid = status != nullptr ? status->uuid() : "";
  return !uuid.empty() ? uuid : fmt::format("number {}", number);
}

std::string driver_of(const DeviceStatus* status) {
  return status != nullptr ? status->state().value("driver", "") : "";
}

std::optional<fs::path> passed_file(const TestedDevice& tested) {
  const auto folder = cache_folder();
  if (!folder) return std::nullopt;
  return *folder / fmt::format("self-test-{}.json", sha256_hex(fields_of(tested).dump()).substr(0, 32));
}

bool passed_before(const TestedDevice& tested) {
  const auto file = passed_file(tested);
  try {
    if (!file || !path_exists(*file)) return false;
    json noted = read_json_file(*file);
    if (!noted.is_object()) return false;
    noted.erase("date");
    return noted == fields_of(tested);
  } catch (const Error&) {
    return false;
  }
}

fs::path note_passed(const TestedDevice& tested) {
  const auto file = passed_file(tested);
  if (!file) {
    throw Error({.what = "the user's cache directory",
                 .got = "neither XDG_CACHE_HOME nor HOME with an absolute path",
                 .expected = "a directory in which the result of the self-test can be kept",
                 .advice = ""});
  }
  make_folders(file->parent_path());
  json noted = fields_of(tested);
  noted["date"] = now_iso8601();
  write_json_file(*file, noted);
  return *file;
}

}  // namespace speclab
