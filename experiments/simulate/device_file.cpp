#include "experiments/simulate/device_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/measure/run_result.h"
#include "core/simulate/table_device.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/record_files.h"
#include "experiments/simulate/device_kinds.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kDeviceFolder[] = "configs/devices";

json calibration_of_run(const fs::path& folder, const json& summary) {
  const json calibration = summary.value("calibration", json());
  if (calibration.is_null()) {
    throw Error({.what = folder.string(),
                 .got = "a run without a calibration",
                 .expected = "a run that measured its forwards",
                 .advice = "Run its config without \"calibration\": {\"enabled\": false}."});
  }
  return calibration;
}

std::string machine_of_run(const json& environment) {
  return fmt::format("{}, {} threads, {}", environment.value("device", "an unknown machine"),
                     environment.value("threads", 0), environment.value("numerics", "unknown numerics"));
}

/// Bytes per number in the KV cache of a run. Only the class f32 keeps floats; the others keep 16 bits.
double kv_bytes_of_run(const json& environment) { return environment.value("numerics", "") == "f32" ? 4 : 2; }

std::map<std::string, simulate::ContextTimes> times_of_run(const json& calibration) {
  std::map<std::string, simulate::ContextTimes> times;
  times.emplace("", calibrated_row_times(calibration));
  for (const auto& [name, draft] : calibration.at("drafts").items()) {
    std::map<int, double> by_rows;
    for (const auto& [rows, ns] : draft.at("n_ns").items()) by_rows[std::stoi(rows)] = ns.get<double>();
    times.emplace(name, theory::RowTimes(std::move(by_rows)));
  }
  return times;
}

/// Time of an autoregressive step outside its forward: mean over the calibrated references; 0 without any.
double step_ns_of_run(const json& calibration, const json& summary) {
  double sum = 0, count = 0;
  for (const json& entry : summary.at("cases")) {
    if (!entry.at("reference").is_null()) continue;
    const auto costs = calibration.at("cases").find(entry.at("id").get<std::string>());
    if (costs == calibration.at("cases").end() || costs->is_null()) continue;
    const json& accept = costs->at("accept_ns");
    sum += costs->at("other_ns").get<double>() + accept.at("constant").get<double>() +
           accept.at("slope").get<double>();
    count += 1;
  }
  return count > 0 ? sum / count : 0;
}

SimulatedDevice device_of_run(const fs::path& folder) {
  const json summary = read_run_summary(folder), environment = read_run_environment(folder);
  SimulatedDevice out;
  out.name = machine_of_run(environment);
  out.kind = DeviceKind::run;
  out.source = folder.string();
  out.kv_bytes = kv_bytes_of_run(environment);
  out.calibration = calibration_of_run(folder, summary);
  out.device = std::make_shared<simulate::RowTables>(
      times_of_run(out.calibration), step_ns_of_run(out.calibration, summary), folder.string(),
      environment.value("read_bandwidth_bytes_per_second", 0.0));
  for (const json& entry : summary.at("cases")) {
    const json speedup = entry.at("metrics").value("speedup", json());
    if (speedup.is_number()) out.measured[entry.at("id").get<std::string>()] = speedup.get<double>();
  }
  return out;
}

[[noreturn]] void unknown_device(const std::string& name) {
  std::vector<std::string> known;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(kDeviceFolder, ignored)) {
    if (entry.path().extension() == ".json") known.push_back(entry.path().stem().string());
  }
  std::ranges::sort(known);
  throw Error({.what = fmt::format("the simulated device \"{}\"", name),
               .got = "neither a name in configs/devices, nor a file, nor the folder of a run",
               .expected = "one of these",
               .advice = known.empty() ? "Run the command in the folder of SpecLab." : suggest(name, known)});
}

json in_us(const json& ns_by_rows) {
  json us = json::object();
  for (const auto& [rows, ns] : ns_by_rows.items()) us[rows] = ns.get<double>() / kNsPerUs;
  return us;
}

json in_us_cost(const json& cost_ns) {
  return {{"constant", cost_ns.at("constant").get<double>() / kNsPerUs},
          {"slope", cost_ns.at("slope").get<double>() / kNsPerUs}};
}

/// The costs of the cases of a calibration. A case that failed in the calibration is left out.
json exported_cases(const json& calibration) {
  json cases = json::object();
  for (const auto& [id, costs] : calibration.at("cases").items()) {
    if (costs.is_null()) continue;
    cases[id] = {{"draft", in_us_cost(costs.at("draft_ns"))},
                 {"accept", in_us_cost(costs.at("accept_ns"))},
                 {"other", costs.at("other_ns").get<double>() / kNsPerUs}};
  }
  return cases;
}

json exported_context(const json& calibration) {
  json drafts = json::object();
  for (const auto& [name, draft] : calibration.at("drafts").items()) drafts[name] = in_us(draft.at("n_ns"));
  return {{"context", calibration.at("context_length")},
          {"target_us", in_us(calibration.at("t_n_ns"))},
          {"drafts_us", drafts}};
}

/// What must be equal in the models of runs whose calibrations make one table.
json models_of_run(const json& environment) {
  json out = json::object();
  const json models = environment.value("models", json::object());
  for (const auto& [role, model] : models.items()) {
    json& kept = out[role];
    for (const char* name : {"sha256", "layers", "inflated"}) kept[name] = model.value(name, json());
  }
  return out;
}

}  // namespace

std::string_view to_string(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::roofline: return "roofline";
    case DeviceKind::offload: return "offload";
    case DeviceKind::moe: return "moe";
    case DeviceKind::linear: return "linear";
    case DeviceKind::table: return "table";
    case DeviceKind::run: break;
  }
  return "run";
}

SimulatedDevice open_device(const std::string& name) {
  const fs::path path = name;
  if (fs::is_directory(path)) return device_of_run(path);
  if (fs::exists(path)) return parse_device(read_json_file(path), path.string());
  const fs::path listed = fs::path(kDeviceFolder) / (name + ".json");
  if (!fs::exists(listed)) unknown_device(name);
  return parse_device(read_json_file(listed), listed.string());
}

json exported_device(const std::string& folder, const std::vector<std::string>& others) {
  const json summary = read_run_summary(folder), environment = read_run_environment(folder);
  const json calibration = calibration_of_run(folder, summary);
  json out = {{"name", machine_of_run(environment)},
              {"kind", to_string(DeviceKind::table)},
              {"source", fmt::format("calibration of {}", folder)},
              {"error", "The times are means of short measurements on this machine at one moment."},
              {"step_us", step_ns_of_run(calibration, summary) / kNsPerUs},
              {"kv_bytes", kv_bytes_of_run(environment)},
              {"cases_us", exported_cases(calibration)}};
  if (const json rate = environment.value("read_bandwidth_bytes_per_second", json()); rate.is_number())
    out["bytes_per_second"] = rate;
  if (others.empty()) {
    out.update(exported_context(calibration));
    return out;
  }
  json contexts = json::array({exported_context(calibration)});
  std::set<double> seen = {contexts[0]["context"].get<double>()};
  for (const std::string& other : others) {
    const json there = read_run_environment(other);
    if (machine_of_run(there) != machine_of_run(environment) ||
        models_of_run(there) != models_of_run(environment)) {
      throw Error({.what = other,
                   .got = fmt::format("{}, or other models", machine_of_run(there)),
                   .expected = fmt::format("{}, and the models of {}", machine_of_run(environment), folder),
                   .advice = "One table describes one machine and one set of models."});
    }
    contexts.push_back(exported_context(calibration_of_run(other, read_run_summary(other))));
    if (!seen.insert(contexts.back()["context"].get<double>()).second) {
      throw Error({.what = other,
                   .got = fmt::format("a second calibration at a context of {} tokens",
                                      contexts.back()["context"].dump()),
                   .expected = "calibrations at different contexts",
                   .advice = "Set calibration.context in the config of the run."});
    }
    out["source"] = fmt::format("{}, {}", out["source"].get<std::string>(), other);
  }
  out["contexts"] = std::move(contexts);
  return out;
}

}  // namespace speclab
