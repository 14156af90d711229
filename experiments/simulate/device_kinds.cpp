#include "experiments/simulate/device_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/options_json.h"
#include "core/simulate/linear_device.h"
#include "core/simulate/roofline_device.h"
#include "core/simulate/table_device.h"
#include "experiments/config/config_value.h"
#include "experiments/metrics/calibration_costs.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr double kMostNumber = 1e30;

/// The kinds of device files.
constexpr DeviceKind kFileKinds[] = {DeviceKind::roofline, DeviceKind::offload, DeviceKind::moe,
                                     DeviceKind::linear, DeviceKind::table};
/// Every part of a device file belongs to at least one of these kinds.
constexpr DeviceKind kKindsWithAllParts[] = {DeviceKind::moe, DeviceKind::linear, DeviceKind::table};

/// The fields that every kind of device file has.
struct DeviceText {
  std::string name, source, error;
  DeviceKind kind = DeviceKind::roofline;
  double step_us = 0, weight_bytes = 2, kv_bytes = 2, watts = 0;

  void fields(OptionVisitor& visit) {
    std::vector<std::pair<DeviceKind, std::string_view>> kinds;
    for (const DeviceKind each : kFileKinds) kinds.emplace_back(each, to_string(each));
    visit("name", name, "name of the device, for people");
    visit("kind", kind, std::span<const std::pair<DeviceKind, std::string_view>>(kinds),
          "how the file describes the device");
    visit("source", source, "where the numbers come from");
    visit("error", error, "how far off the times may be");
    visit("step_us", step_us, Range<double>{0, kMostNumber}, "microseconds of a step outside its forwards");
    visit("weight_bytes", weight_bytes, Range<double>{0, 8, true}, "bytes per weight");
    visit("kv_bytes", kv_bytes, Range<double>{0, 8, true}, "bytes per number in the KV cache");
    visit("watts", watts, Range<double>{0, kMostNumber}, "power while decoding; 0: not known");
  }
};

struct RooflineText {
  double bytes_per_second = 0, flops_per_second = 0, forward_floor_us = 0, layer_floor_us = 0;

  void fields(OptionVisitor& visit) {
    visit("bytes_per_second", bytes_per_second, Range<double>{0, kMostNumber, true}, "memory bandwidth");
    visit("flops_per_second", flops_per_second, Range<double>{0, kMostNumber, true}, "operations per second");
    visit("forward_floor_us", forward_floor_us, Range<double>{0, kMostNumber},
          "microseconds added per forward");
    visit("layer_floor_us", layer_floor_us, Range<double>{0, kMostNumber}, "microseconds added per layer");
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
    visit("latency_us", latency_us, Range<double>{0, kMostNumber},
          "microseconds of an all-reduce or hand-over");
    visit("bytes_per_second", bytes_per_second, Range<double>{0, kMostNumber},
          "rate of a link; 0: unlimited");
  }
};

struct OffloadText {
  simulate::HostLink link;

  void fields(OptionVisitor& visit) {
    visit("bytes_per_second", link.bytes_per_second, Range<double>{0, kMostNumber, true},
          "rate of the link to the host");
    visit("resident_share", link.resident_share, Range<double>{0, 1},
          "share of the target's weights on the device");
  }
};

struct MoeText {
  simulate::Experts experts;

  void fields(OptionVisitor& visit) {
    visit("experts", experts.experts, Range<int>{1, 4096}, "experts of a layer");
    visit("active", experts.active, Range<int>{1, 4096}, "experts that a token uses");
    visit("width", experts.width, Range<int>{0, 1 << 20}, "hidden units of an expert; 0: as the target");
  }
};

struct LinearText {
  double constant_us = 0, per_row_us = 0, per_key_us = 0;

  void fields(OptionVisitor& visit) {
    visit("constant_us", constant_us, Range<double>{0, kMostNumber, true}, "microseconds of every forward");
    visit("per_row_us", per_row_us, Range<double>{0, kMostNumber}, "microseconds per row");
    visit("per_key_us", per_key_us, Range<double>{0, kMostNumber}, "microseconds per committed token");
  }
  simulate::LinearTime time() const {
    return {kNsPerUs * constant_us, kNsPerUs * per_row_us, kNsPerUs * per_key_us};
  }
};

/// A part of a step as constant + slope x count.
struct StepCostText {
  double constant = 0, slope = 0;

  void fields(OptionVisitor& visit) {
    visit("constant", constant, Range<double>{0, kMostNumber}, "microseconds of every step");
    visit("slope", slope, Range<double>{0, kMostNumber}, "microseconds for each token");
  }
};

/// A file while it is read.
struct DeviceFile {
  const json& content;
  const std::string& path;
  DeviceText text = {};

  std::string at(std::string_view key) const { return json_pointer(path + ": ", key); }
};

const json& part(const json& of, const char* name, const std::string& where) {
  const auto found = of.find(name);
  if (found != of.end()) return *found;
  throw Error({.what = json_pointer(where, name),
               .got = fmt::format("no \"{}\"", name),
               .expected = fmt::format("\"{}\", which a device of this kind has", name),
               .advice = "configs/devices/README.md describes the format."});
}

/// Reads a part of the file. `needed`: fields that must be there.
void parse_part(const OptionFields& fields, const DeviceFile& file, const char* name,
                std::initializer_list<const char*> needed) {
  const json& object = part(file.content, name, file.path + ": ");
  parse_options(fields, object, file.at(name));
  for (const char* field : needed) part(object, field, file.at(name));
}

/// Reads {"<rows>": microseconds} as {"<rows>": nanoseconds}.
json row_times_ns(const json& value, const std::string& where) {
  if (!value.is_object()) wrong_value(where, value, "an object: number of rows to microseconds");
  json times = json::object();
  for (const auto& [key, time] : value.items()) {
    int rows = 0;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), rows);
    if (problem != std::errc() || end != key.data() + key.size() || rows < 1 || rows > 1 << 20)
      wrong_value(json_pointer(where, key), key, "a number of rows from 1 to 1048576");
    if (!time.is_number() || !(time.get<double>() > 0 && time.get<double>() < kMostNumber))
      wrong_value(json_pointer(where, key), time, "microseconds above 0");
    times[std::to_string(rows)] = kNsPerUs * time.get<double>();
  }
  if (!times.contains("1"))
    wrong_value(where, value, "times by number of rows, with n = 1 as the smallest n");
  return times;
}

theory::RowTimes row_times(const json& ns) {
  std::map<int, double> times;
  for (const auto& [rows, time] : ns.items()) times[std::stoi(rows)] = time.get<double>();
  return theory::RowTimes(std::move(times));
}

simulate::RooflineRates parse_rates(const DeviceFile& file) {
  RooflineText roofline;
  parse_part(option_fields(roofline), file, "roofline", {"bytes_per_second", "flops_per_second"});
  simulate::RooflineRates rates{.bytes_per_second = roofline.bytes_per_second,
                                .flops_per_second = roofline.flops_per_second,
                                .forward_floor_ns = kNsPerUs * roofline.forward_floor_us,
                                .layer_floor_ns = kNsPerUs * roofline.layer_floor_us,
                                .step_ns = kNsPerUs * file.text.step_us};
  if (file.content.contains("group")) {
    GroupText group;
    parse_options(option_fields(group), file.content["group"], file.at("group"));
    rates.devices = group.devices;
    rates.split = group.split;
    rates.link_latency_ns = kNsPerUs * group.latency_us;
    rates.link_bytes_per_second = group.bytes_per_second;
  }
  if (file.text.kind == DeviceKind::offload || file.content.contains("offload")) {
    OffloadText offload;
    parse_part(option_fields(offload), file, "offload", {"bytes_per_second"});
    rates.host = offload.link;
  }
  if (file.text.kind == DeviceKind::moe) {
    MoeText moe;
    parse_part(option_fields(moe), file, "moe", {"experts", "active"});
    if (moe.experts.active > moe.experts.experts)
      wrong_value(file.at("moe") + "/active", moe.experts.active,
                  fmt::format("at most all {} experts", moe.experts.experts));
    rates.experts = moe.experts;
  }
  return rates;
}

std::shared_ptr<const simulate::VirtualDevice> parse_linear(const DeviceFile& file) {
  LinearText target, draft;
  parse_part(option_fields(target), file, "target", {"constant_us"});
  parse_part(option_fields(draft), file, "draft", {"constant_us"});
  return std::make_shared<simulate::LinearTimes>(target.time(), draft.time(), kNsPerUs * file.text.step_us,
                                                 file.path);
}

/// The times of one context. Times of the target are extrapolated as calibrated_row_times() does it.
struct TableContext {
  double context = 0;
  json target_ns;
  std::map<std::string, theory::RowTimes> times;
};

TableContext parse_context(const json& value, const std::string& where) {
  TableContext out;
  if (const auto found = value.find("context"); found != value.end()) {
    if (!found->is_number() || !(found->get<double>() >= 0 && found->get<double>() < kMostNumber))
      wrong_value(json_pointer(where, "context"), *found, "a number of committed tokens");
    out.context = *found;
  }
  out.target_ns = row_times_ns(part(value, "target_us", where), json_pointer(where, "target_us"));
  out.times.emplace("", calibrated_row_times(json::object({{"t_n_ns", out.target_ns}})));
  const std::string drafts_at = json_pointer(where, "drafts_us");
  const json drafts = value.value("drafts_us", json::object());
  if (!drafts.is_object()) wrong_value(drafts_at, drafts, "an object: name of a draft to its times");
  for (const auto& [name, times] : drafts.items()) {
    if (name.empty()) wrong_value(drafts_at, name, "names of drafts");
    out.times.emplace(name, row_times(row_times_ns(times, json_pointer(drafts_at, name))));
  }
  return out;
}

/// The contexts of a table, in the order of the file.
std::vector<TableContext> parse_contexts(const DeviceFile& file) {
  if (!file.content.contains("contexts")) return {parse_context(file.content, file.path + ": ")};
  for (const char* name : {"context", "target_us", "drafts_us"}) {
    if (file.content.contains(name))
      wrong_value(file.at(name), file.content[name], "this field in the entries of \"contexts\" only");
  }
  const json& list = file.content["contexts"];
  if (!list.is_array() || list.empty())
    wrong_value(file.at("contexts"), list, "a list of tables, one for each context");
  std::vector<TableContext> out;
  std::set<double> seen;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}/{}", file.at("contexts"), i);
    static const std::vector<std::string> kKnown = {"target_us", "drafts_us"};
    if (!list[i].is_object()) wrong_value(where, list[i], "an object with context, target_us and drafts_us");
    for (const auto& [key, value] : list[i].items()) {
      if (key != "context" && std::ranges::find(kKnown, key) == kKnown.end())
        wrong_value(json_pointer(where, key), value, "only context, target_us and drafts_us");
    }
    part(list[i], "context", where);
    out.push_back(parse_context(list[i], where));
    if (!seen.insert(out.back().context).second)
      wrong_value(where + "/context", list[i]["context"], "another context than those before");
  }
  return out;
}

json cost_ns(const json& value, const std::string& where) {
  StepCostText cost;
  parse_options(option_fields(cost), value, where);
  return {{"constant", kNsPerUs * cost.constant}, {"slope", kNsPerUs * cost.slope}};
}

/// "cases_us" in the form of "cases" of a calibration.
json parse_cases(const DeviceFile& file) {
  const json& cases = file.content["cases_us"];
  const std::string where = file.at("cases_us");
  if (!cases.is_object()) wrong_value(where, cases, "an object: id of a case to its costs");
  json out = json::object();
  for (const auto& [id, costs] : cases.items()) {
    const std::string at = json_pointer(where, id);
    if (!costs.is_object()) wrong_value(at, costs, "an object with draft, accept and other");
    const json& other = part(costs, "other", at);
    if (!other.is_number() || !(other.get<double>() >= 0 && other.get<double>() < kMostNumber))
      wrong_value(at + "/other", other, "microseconds, 0 or more");
    out[id] = {{"draft_ns", cost_ns(part(costs, "draft", at), at + "/draft")},
               {"accept_ns", cost_ns(part(costs, "accept", at), at + "/accept")},
               {"other_ns", kNsPerUs * other.get<double>()}};
  }
  return out;
}

void parse_table(const DeviceFile& file, SimulatedDevice& out) {
  const std::vector<TableContext> contexts = parse_contexts(file);
  std::map<std::string, std::map<double, theory::RowTimes>> by_model;
  for (const TableContext& one : contexts) {
    for (const auto& [model, times] : one.times) by_model[model].emplace(one.context, times);
  }
  std::map<std::string, simulate::ContextTimes> times;
  for (auto& [model, by_context] : by_model)
    times.emplace(model, simulate::ContextTimes(std::move(by_context)));
  double rate = 0;
  if (const auto found = file.content.find("bytes_per_second"); found != file.content.end()) {
    if (!found->is_number() || !(found->get<double>() > 0 && found->get<double>() < kMostNumber))
      wrong_value(file.at("bytes_per_second"), *found, "the memory bandwidth, above 0");
    rate = *found;
  }
  out.contexts = contexts.size();
  out.device =
      std::make_shared<simulate::RowTables>(std::move(times), kNsPerUs * file.text.step_us, file.path, rate);
  if (file.content.contains("cases_us"))
    out.calibration = {{"t_n_ns", contexts.front().target_ns}, {"cases", parse_cases(file)}};
}

/// The parts that a file of this kind may have.
const std::vector<std::string>& parts_of(DeviceKind kind) {
  static const std::map<DeviceKind, std::vector<std::string>> kParts = {
      {DeviceKind::roofline, {"roofline", "group"}},
      {DeviceKind::offload, {"roofline", "offload"}},
      {DeviceKind::moe, {"roofline", "moe", "offload", "group"}},
      {DeviceKind::linear, {"target", "draft"}},
      {DeviceKind::table, {"target_us", "drafts_us", "context", "contexts", "cases_us", "bytes_per_second"}}};
  return kParts.at(kind);
}

/// Throws Error for a part that belongs to another kind, and for the kind moe with both "offload" and
/// "group".
void refuse_other_parts(const DeviceFile& file) {
  const std::vector<std::string>& own = parts_of(file.text.kind);
  for (const DeviceKind kind : kKindsWithAllParts) {
    for (const std::string& name : parts_of(kind)) {
      if (!file.content.contains(name) || std::ranges::find(own, name) != own.end()) continue;
      throw Error({.what = file.at(name),
                   .got = fmt::format("\"{}\" in a device of kind {}", name, to_string(file.text.kind)),
                   .expected = "only fields of this kind",
                   .advice = "configs/devices/README.md describes the format."});
    }
  }
  if (file.text.kind == DeviceKind::moe && file.content.contains("offload") && file.content.contains("group"))
    wrong_value(file.at("group"), file.content["group"], "no \"group\" in a device with \"offload\"");
}

}  // namespace

SimulatedDevice parse_device(const json& file, const std::string& path) {
  DeviceFile reader{file, path};
  std::vector<std::string> parts;
  for (const DeviceKind kind : kKindsWithAllParts) {
    const std::vector<std::string>& of_kind = parts_of(kind);
    parts.insert(parts.end(), of_kind.begin(), of_kind.end());
  }
  parse_options(option_fields(reader.text), file, path + ": ", parts);
  refuse_other_parts(reader);
  SimulatedDevice out;
  out.name = reader.text.name.empty() ? path : reader.text.name;
  out.kind = reader.text.kind;
  out.source = reader.text.source;
  out.error = reader.text.error;
  out.weight_bytes = reader.text.weight_bytes;
  out.kv_bytes = reader.text.kv_bytes;
  out.watts = reader.text.watts;
  if (out.kind == DeviceKind::linear) {
    out.device = parse_linear(reader);
  } else if (out.kind == DeviceKind::table) {
    parse_table(reader, out);
  } else {
    out.rates = parse_rates(reader);
    out.device = std::make_shared<simulate::Roofline>(*out.rates, path);
  }
  return out;
}

}  // namespace speclab
