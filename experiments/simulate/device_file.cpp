#include "experiments/simulate/device_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/options_json.h"
#include "core/measure/run_result.h"
#include "core/simulate/linear_device.h"
#include "core/simulate/roofline_device.h"
#include "core/simulate/table_device.h"
#include "experiments/config/config_value.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/record_files.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kFolder[] = "configs/devices";
constexpr double kMost = 1e30;
constexpr double kNsPerUs = 1e3;

/// The fields that every kind of device file has.
struct DeviceText {
  std::string name, kind, source, error;
  double step_us = 0, weight_bytes = 2, watts = 0;

  void fields(OptionVisitor& visit) {
    visit("name", name, "name of the device, for people");
    visit("kind", kind, {"roofline", "linear", "table"}, "how the file describes the device");
    visit("source", source, "where the numbers come from");
    visit("error", error, "how far off the times may be");
    visit("step_us", step_us, Range<double>{0, kMost}, "microseconds of a step outside its forwards");
    visit("weight_bytes", weight_bytes, Range<double>{0, 8, true}, "bytes per weight");
    visit("watts", watts, Range<double>{0, kMost}, "power while decoding; 0: not known");
  }
};

struct RooflineText {
  double bytes_per_second = 0, flops_per_second = 0, forward_floor_us = 0, layer_floor_us = 0;

  void fields(OptionVisitor& visit) {
    visit("bytes_per_second", bytes_per_second, Range<double>{0, kMost, true}, "memory bandwidth");
    visit("flops_per_second", flops_per_second, Range<double>{0, kMost, true}, "operations per second");
    visit("forward_floor_us", forward_floor_us, Range<double>{0, kMost}, "microseconds added per forward");
    visit("layer_floor_us", layer_floor_us, Range<double>{0, kMost}, "microseconds added per layer");
  }
};

struct GroupText {
  int devices = 1;
  simulate::Split split = simulate::Split::tensor;
  double latency_us = 0, bytes_per_second = 0;

  void fields(OptionVisitor& visit) {
    visit("devices", devices, Range<int>{1, 4096}, "devices that share the model");
    visit("split", split, {{simulate::Split::tensor, "tensor"}, {simulate::Split::pipeline, "pipeline"}},
          "how the devices share the model");
    visit("latency_us", latency_us, Range<double>{0, kMost}, "microseconds of an all-reduce or hand-over");
    visit("bytes_per_second", bytes_per_second, Range<double>{0, kMost}, "rate of a link; 0: unlimited");
  }
};

struct LinearText {
  double constant_us = 0, per_row_us = 0, per_key_us = 0;

  void fields(OptionVisitor& visit) {
    visit("constant_us", constant_us, Range<double>{0, kMost, true}, "microseconds of every forward");
    visit("per_row_us", per_row_us, Range<double>{0, kMost}, "microseconds per row");
    visit("per_key_us", per_key_us, Range<double>{0, kMost}, "microseconds per committed token");
  }
  simulate::LinearTime time() const {
    return {kNsPerUs * constant_us, kNsPerUs * per_row_us, kNsPerUs * per_key_us};
  }
};

/// Reads {"<rows>": microseconds}.
theory::RowTimes row_times(const json& value, const std::string& where) {
  if (!value.is_object()) wrong_value(where, value, "an object: number of rows to microseconds");
  std::map<int, double> times;
  for (const auto& [key, time] : value.items()) {
    int rows = 0;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), rows);
    if (problem != std::errc() || end != key.data() + key.size() || rows < 1)
      wrong_value(json_pointer(where, key), key, "a number of rows, 1 or more");
    if (!time.is_number() || !(time.get<double>() > 0))
      wrong_value(json_pointer(where, key), time, "microseconds above 0");
    times[rows] = kNsPerUs * time.get<double>();
  }
  return theory::RowTimes(std::move(times));
}

const json& part(const json& file, const char* name, const std::string& where) {
  const auto found = file.find(name);
  if (found != file.end()) return *found;
  throw Error({.what = where,
               .got = fmt::format("no \"{}\"", name),
               .expected = fmt::format("\"{}\", which a device of this kind has", name),
               .advice = "configs/devices/README.md describes the format."});
}

std::shared_ptr<const simulate::VirtualDevice> parse_roofline(const json& file, const DeviceText& text,
                                                              const std::string& where) {
  RooflineText roofline;
  GroupText group;
  parse_options(option_fields(roofline), part(file, "roofline", where), where + "/roofline");
  if (file.contains("group")) parse_options(option_fields(group), file["group"], where + "/group");
  return std::make_shared<simulate::Roofline>(
      simulate::RooflineRates{.bytes_per_second = roofline.bytes_per_second,
                              .flops_per_second = roofline.flops_per_second,
                              .forward_floor_ns = kNsPerUs * roofline.forward_floor_us,
                              .layer_floor_ns = kNsPerUs * roofline.layer_floor_us,
                              .step_ns = kNsPerUs * text.step_us,
                              .devices = group.devices,
                              .split = group.split,
                              .link_latency_ns = kNsPerUs * group.latency_us,
                              .link_bytes_per_second = group.bytes_per_second},
      where);
}

std::shared_ptr<const simulate::VirtualDevice> parse_linear(const json& file, const DeviceText& text,
                                                            const std::string& where) {
  LinearText target, draft;
  parse_options(option_fields(target), part(file, "target", where), where + "/target");
  parse_options(option_fields(draft), part(file, "draft", where), where + "/draft");
  return std::make_shared<simulate::LinearTimes>(target.time(), draft.time(), kNsPerUs * text.step_us, where);
}

std::shared_ptr<const simulate::VirtualDevice> parse_table(const json& file, const DeviceText& text,
                                                           const std::string& where) {
  std::map<std::string, theory::RowTimes> times;
  times.emplace("", row_times(part(file, "target_us", where), where + "/target_us"));
  if (file.contains("context") && !file["context"].is_number())
    wrong_value(where + "/context", file["context"], "a number of committed tokens");
  const json drafts = file.value("drafts_us", json::object());
  if (!drafts.is_object())
    wrong_value(where + "/drafts_us", drafts, "an object: name of a draft to its times");
  for (const auto& [name, value] : drafts.items())
    times.emplace(name, row_times(value, json_pointer(where + "/drafts_us", name)));
  return std::make_shared<simulate::RowTables>(std::move(times), kNsPerUs * text.step_us, where);
}

SimulatedDevice parse_device(const json& file, const std::string& where) {
  static const std::vector<std::string> kParts = {"roofline",  "group",     "target", "draft",
                                                  "target_us", "drafts_us", "context"};
  DeviceText text;
  parse_options(option_fields(text), file, where, kParts);
  std::vector<std::string> allowed = {"roofline", "group"};
  SimulatedDevice out;
  if (text.kind == "linear") {
    allowed = {"target", "draft"};
    out.device = parse_linear(file, text, where);
  } else if (text.kind == "table") {
    allowed = {"target_us", "drafts_us", "context"};
    out.device = parse_table(file, text, where);
  } else {
    out.device = parse_roofline(file, text, where);
  }
  for (const std::string& name : kParts) {
    if (file.contains(name) && std::ranges::find(allowed, name) == allowed.end()) {
      throw Error({.what = json_pointer(where, name),
                   .got = fmt::format("\"{}\" in a device of kind {}", name, text.kind),
                   .expected = "only fields of this kind",
                   .advice = "configs/devices/README.md describes the format."});
    }
  }
  out.name = text.name.empty() ? where : text.name;
  out.kind = text.kind.empty() ? "roofline" : text.kind;
  out.source = text.source;
  out.error = text.error;
  out.weight_bytes = text.weight_bytes;
  out.watts = text.watts;
  return out;
}

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

std::string machine_of_run(const fs::path& folder) {
  const json environment = read_run_environment(folder);
  return fmt::format("{}, {} threads, {}", environment.value("device", "an unknown machine"),
                     environment.value("threads", 0), environment.value("numerics", "unknown numerics"));
}

std::map<std::string, theory::RowTimes> times_of_run(const json& calibration) {
  std::map<std::string, theory::RowTimes> times;
  times.emplace("", calibrated_row_times(calibration));
  for (const auto& [name, draft] : calibration.at("drafts").items()) {
    std::map<int, double> by_rows;
    for (const auto& [rows, ns] : draft.at("n_ns").items()) by_rows[std::stoi(rows)] = ns.get<double>();
    times.emplace(name, theory::RowTimes(std::move(by_rows)));
  }
  return times;
}

/// Time of an autoregressive step outside its forward: the mean over the references of the run.
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
  const json summary = read_run_summary(folder);
  SimulatedDevice out;
  out.name = machine_of_run(folder);
  out.kind = "run";
  out.source = folder.string();
  out.calibration = calibration_of_run(folder, summary);
  out.device = std::make_shared<simulate::RowTables>(
      times_of_run(out.calibration), step_ns_of_run(out.calibration, summary), folder.string());
  for (const json& entry : summary.at("cases")) {
    const json speedup = entry.at("metrics").value("speedup", json());
    if (speedup.is_number()) out.measured[entry.at("id").get<std::string>()] = speedup.get<double>();
  }
  return out;
}

[[noreturn]] void unknown_device(const std::string& name) {
  std::vector<std::string> known;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder, ignored)) {
    if (entry.path().extension() == ".json") known.push_back(entry.path().stem().string());
  }
  std::ranges::sort(known);
  throw Error({.what = fmt::format("the simulated device \"{}\"", name),
               .got = "neither a name in configs/devices, nor a file, nor the folder of a run",
               .expected = "one of these",
               .advice = known.empty() ? "Run the command in the folder of SpecLab." : suggest(name, known)});
}

}  // namespace

SimulatedDevice open_device(const std::string& name) {
  const fs::path path = name;
  if (fs::is_directory(path)) return device_of_run(path);
  if (fs::exists(path)) return parse_device(read_json_file(path), path.string());
  const fs::path listed = fs::path(kFolder) / (name + ".json");
  if (!fs::exists(listed)) unknown_device(name);
  return parse_device(read_json_file(listed), listed.string());
}

json exported_device(const std::string& folder) {
  const json summary = read_run_summary(folder);
  const json calibration = calibration_of_run(folder, summary);
  json target = json::object(), drafts = json::object();
  for (const auto& [rows, ns] : calibration.at("t_n_ns").items()) target[rows] = ns.get<double>() / kNsPerUs;
  for (const auto& [name, draft] : calibration.at("drafts").items()) {
    for (const auto& [rows, ns] : draft.at("n_ns").items()) drafts[name][rows] = ns.get<double>() / kNsPerUs;
  }
  return {{"name", machine_of_run(folder)},
          {"kind", "table"},
          {"source", fmt::format("calibration of {}", folder)},
          {"context", calibration.at("context_length")},
          {"step_us", step_ns_of_run(calibration, summary) / kNsPerUs},
          {"target_us", target},
          {"drafts_us", drafts}};
}

}  // namespace speclab
