#include "experiments/run_folder.h"

#include <fmt/format.h>

#include <system_error>

#include "core/base/error.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string short_text(const json& value) {
  const std::string text = value.dump();
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

/// JSON pointer and both values of the first difference.
std::string first_json_difference(const json& a, const json& b) {
  const json patch = json::diff(a, b);
  if (patch.empty()) return "";
  const json::json_pointer at(patch[0]["path"].get<std::string>());
  const std::string was = a.contains(at) ? short_text(a[at]) : "nothing",
                    is = b.contains(at) ? short_text(b[at]) : "nothing";
  return fmt::format("{}: it was {}, now it is {}", at.to_string(), was, is);
}

}  // namespace

std::vector<std::string> environment_differences(const json& a, const json& b, bool same_binary, bool same_machine) {
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

RunFolder RunFolder::create(const fs::path& path, const json& config, const json& environment) {
  if (fs::exists(path / "config.json")) {
    throw Error({.what = path.string(),
                 .got = "a run already",
                 .expected = "a new folder",
                 .advice = "Go on with --resume, or choose another one with --out."});
  }
  std::error_code code;
  fs::create_directories(path / "cases", code);
  if (code) {
    throw Error({.what = "cannot make the folder " + path.string(),
                 .got = code.message(),
                 .expected = "",
                 .advice = "Choose another one with --out."});
  }
  write_json_file(path / "environment.json", environment);
  write_json_file(path / "config.json", config);  // last: a folder with a config is a run
  return RunFolder(path);
}

RunFolder RunFolder::resume(const fs::path& path, const json& config, const json& environment) {
  if (!fs::exists(path / "config.json")) {
    throw Error({.what = path.string(),
                 .got = "no run",
                 .expected = "the folder of a run to go on with",
                 .advice = "Leave --resume out to start one."});
  }
  const json old_config = read_json_file(path / "config.json"),
             old_environment = read_json_file(path / "environment.json");
  if (const std::string difference = first_json_difference(old_config, config); !difference.empty()) {
    throw Error({.what = "--resume " + path.string(),
                 .got = "another config, " + difference,
                 .expected = "the config of that run",
                 .advice = "Start a new run with another --out."});
  }
  const std::vector<std::string> differences = environment_differences(old_environment, environment, true);
  if (!differences.empty()) {
    throw Error({.what = "--resume " + path.string(),
                 .got = "a difference in " + differences.front(),
                 .expected = "the same binary, machine, backend and models",
                 .advice = "Start a new run with another --out."});
  }
  fs::create_directories(path / "cases");
  return RunFolder(path);
}

}  // namespace speclab
