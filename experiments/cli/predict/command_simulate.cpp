#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/standard_streams.h"
#include "experiments/cli/command.h"
#include "experiments/cli/predict/row_times_text.h"
#include "experiments/metrics/run_data.h"
#include "experiments/simulate/device_file.h"
#include "experiments/simulate/lookahead_prices.h"
#include "experiments/simulate/repricing.h"
#include "experiments/simulate/run_match.h"
#include "experiments/simulate/sweep.h"
#include "experiments/simulate/table_holes.h"
#include "experiments/simulate/timeline_table.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

constexpr std::pair<ShownTimelines, std::string_view> kTimelineNames[] = {
    {ShownTimelines::serial, "serial"}, {ShownTimelines::overlap, "overlap"}, {ShownTimelines::dsi, "dsi"}};
constexpr std::pair<SweepAxis, std::string_view> kAxisNames[] = {
    {SweepAxis::ridge, "ridge"}, {SweepAxis::rows, "rows"}, {SweepAxis::batch, "batch"}};

std::vector<int> parse_batches(const std::string& text) {
  std::vector<int> batches;
  for (const double number : parse_number_list(text, "--batch")) {
    if (!(number >= 1 && number <= 1 << 20 && number == std::floor(number))) {
      throw Error({.what = "--batch",
                   .got = fmt::format("{}", number),
                   .expected = "numbers of sequences, 1 or more",
                   .advice = "For example --batch 1,8,64."});
    }
    batches.push_back(static_cast<int>(number));
  }
  if (batches.empty()) {
    throw Error({.what = "--batch",
                 .got = "no number",
                 .expected = "numbers of sequences, 1 or more",
                 .advice = "For example --batch 1,8,64."});
  }
  return batches;
}

int parse_count(const po::variables_map& values, const char* option, int most) {
  if (values.count(option) == 0) return 0;
  const int value = values[option].as<int>();
  if (value >= 1 && value <= most) return value;
  throw Error({.what = fmt::format("--{}", option),
               .got = fmt::format("{}", value),
               .expected = fmt::format("1 to {}", most),
               .advice = ""});
}

TimelineWish parse_timeline(const po::variables_map& values) {
  const std::string word = values["timeline"].as<std::string>();
  const ShownTimelines shown = parse_choice("--timeline", word, kTimelineNames);
  if (shown != ShownTimelines::dsi)
    refuse_options(values, "speclab simulate --timeline " + word, {"servers", "lookahead"});
  return {.shown = shown,
          .servers = parse_count(values, "servers", 1024),
          .lookahead = parse_count(values, "lookahead", 256)};
}

std::vector<std::string> names_of_devices(const po::variables_map& values) {
  return values.count("device") > 0 ? values["device"].as<std::vector<std::string>>()
                                    : std::vector<std::string>();
}

/// Prints a simulation of each device, as JSON or as text.
int print_each(const po::variables_map& values, const std::vector<SimulatedDevice>& devices,
               const std::function<json(const SimulatedDevice&)>& simulate,
               const std::function<std::string(const json&)>& text) {
  json all = json::array();
  for (const SimulatedDevice& device : devices) {
    all.push_back(simulate(device));
    if (values.count("json") == 0) fmt::print("{}{}\n", all.size() > 1 ? "\n" : "", text(all.back()));
  }
  if (values.count("json") > 0) fmt::print("{}\n", all.dump(1));
  return kOk;
}

/// Says on stderr where the forwards of a run need times that a device does not have.
void note_holes(const po::variables_map& values, const RunData& run, int batch) {
  for (const std::string& name : names_of_devices(values)) {
    for (const std::string& note :
         hole_notes(measured_rows_of(device_content(name)), largest_forwards(run, batch)))
      print_status("{}: {}\n", name, note);
  }
}

/// Prints a table of cases for each device. `devices`: the opened devices of --device, in the same order.
/// Returns kCheckFailed if a simulated speedup is off by more than --limit.
int reprice(const po::variables_map& values, const RunData& run,
            const std::vector<SimulatedDevice>& devices) {
  const std::vector<int> batches = parse_batches(values["batch"].as<std::string>());
  note_holes(values, run, *std::ranges::max_element(batches));
  const std::vector<std::string> names = names_of_devices(values);
  double worst = 0;
  int compared = 0;
  std::size_t next = 0;
  print_each(
      values, devices,
      [&](const SimulatedDevice& device) {
        const MatchedRun matched = with_models_of_device(run, names.at(next++));
        for (const std::string& note : matched.notes) print_status("{}\n", note);
        json simulation = repriced(matched.run, device, batches);
        for (const json& row : simulation["cases"]) {
          if (!row["error"].is_number()) continue;
          worst = std::max(worst, std::abs(row["error"].get<double>()));
          ++compared;
        }
        return simulation;
      },
      repriced_text);
  if (values.count("limit") == 0) return kOk;
  if (compared == 0) {
    throw Error({.what = "--limit",
                 .got = "no case with a simulated and a measured speedup",
                 .expected = "--device with the folder of a run that has cases of RUN, and --batch 1",
                 .advice = "Without --limit nothing is compared."});
  }
  return worst > values["limit"].as<double>() ? kCheckFailed : kOk;
}

int simulate_run(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()(
      "device", po::value<std::vector<std::string>>()->composing(),
      "a name in configs/devices, a device file, or the folder of a run on that device; any "
      "number of times")("batch", po::value<std::string>()->default_value("1"),
                         "numbers of sequences that the device decodes at the same time, such as 1,8,64")(
      "category", po::value<std::string>(), "only the prompts of RUN with this category")(
      "limit", po::value<double>(),
      "with a run as device: exit code 1 if a simulated speedup is off by more than this fraction")(
      "sweep", po::value<std::string>(),
      "instead of a table of devices, the speedup of each case along an axis, and where it falls below 1: "
      "ridge "
      "(peak operations / bandwidth, on --device or on a device without floors), rows (free rows, with the "
      "other costs of RUN) or batch (on --device)")(
      "timeline", po::value<std::string>(),
      "instead: draft and target on separate devices, by formulas and event by event; one of serial (for "
      "comparison), overlap (PEARL, AMUSD) and dsi")(
      "servers", po::value<int>(),
      "with --timeline dsi: copies of the target; as many as needed if left out")(
      "lookahead", po::value<int>(),
      "with --timeline dsi: drafted tokens between two verifications; the fastest number if left out")(
      "wng",
      "instead: price the lookahead settings of RUN, and find the best setting by the law fitted to them")(
      "export", "print the machine of RUN as a device file instead")(
      "context", po::value<std::vector<std::string>>()->composing(),
      "with --export: a run of the same models on the same machine, calibrated at another context; any "
      "number of "
      "times")("json", "print JSON");
  const auto values = parse_arguments(command, arguments, options, {"RUN"});
  if (!values) return kOk;
  const std::string folder = required(*values, "RUN", command);
  const auto given = [&](const char* name) { return values->count(name) > 0; };
  if (given("export") + given("sweep") + given("timeline") + given("wng") > 1) {
    throw Error({.what = "speclab simulate",
                 .got = "several of --export, --sweep, --timeline and --wng",
                 .expected = "at most one of them",
                 .advice = ""});
  }
  if (!given("timeline"))
    refuse_options(*values, "speclab simulate without --timeline dsi", {"servers", "lookahead"});
  if (given("export")) {
    refuse_options(*values, "speclab simulate --export", {"device", "limit", "category"});
    fmt::print("{}\n",
               exported_device(folder, given("context") ? (*values)["context"].as<std::vector<std::string>>()
                                                        : std::vector<std::string>())
                   .dump(2));
    return kOk;
  }
  refuse_options(*values, "speclab simulate without --export", {"context"});
  std::optional<SweepAxis> axis;
  if (given("sweep")) axis = parse_choice("--sweep", (*values)["sweep"].as<std::string>(), kAxisNames);
  std::optional<TimelineWish> wish;
  if (given("timeline")) wish = parse_timeline(*values);
  const bool own = axis && *axis != SweepAxis::batch;  // a sweep that needs no device
  if (axis == SweepAxis::rows) refuse_options(*values, "speclab simulate --sweep rows", {"device"});
  if (!given("device") && !own) {
    throw Error({.what = "speclab simulate",
                 .got = "no --device",
                 .expected = "a device to simulate, or --export, --sweep ridge or --sweep rows",
                 .advice = "configs/devices lists devices: for example --device h100."});
  }
  if (axis || wish || given("wng")) {
    refuse_options(*values, "speclab simulate with --sweep, --timeline or --wng", {"limit"});
    if (!(*values)["batch"].defaulted()) {
      throw Error({.what = "--batch",
                   .got = "--batch with --sweep, --timeline or --wng",
                   .expected = "a batch of 1 there; --sweep batch varies it",
                   .advice = ""});
    }
  }
  std::vector<SimulatedDevice> devices;
  for (const std::string& name : names_of_devices(*values)) devices.push_back(open_device(name));
  if (devices.empty()) devices.push_back(ideal_device());
  if (given("wng")) {
    refuse_options(*values, "speclab simulate --wng", {"category"});
    return print_each(
        *values, devices, [&](const SimulatedDevice& device) { return lookahead_prices(folder, device); },
        lookahead_prices_text);
  }
  RunData run = load_run(folder);
  require_lines(run, folder);
  if (given("category")) {
    run = run_of_category(run, (*values)["category"].as<std::string>());
    for (SimulatedDevice& device : devices) device.measured.clear();  // the speedups of all prompts
  }
  if (axis) {
    if (*axis == SweepAxis::batch) note_holes(*values, run, kMostSequences);
    return print_each(
        *values, devices, [&](const SimulatedDevice& device) { return swept(run, *axis, device); },
        swept_text);
  }
  if (wish) {
    return print_each(
        *values, devices, [&](const SimulatedDevice& device) { return timelines(run, device, *wish); },
        timelines_text);
  }
  return reprice(*values, run, devices);
}

int run_simulate(const Command& command, const std::vector<std::string>& arguments) {
  return reading_records(command, [&] { return simulate_run(command, arguments); });
}

}  // namespace

const Command kSimulateCommand = {
    "simulate",
    "RUN --device NAME... [--batch LIST] [--json], or: speclab simulate RUN --sweep AXIS | --timeline KIND | "
    "--wng | --export",
    "Simulates what a run would have cost on another device, from the acceptance of the run and the times of "
    "the device. Shows time, speedup, best gamma and break-even acceptance, and, where the device is another "
    "run, the speedups that were measured there. Other forms show overlapped drafting or lookahead "
    "decoding on the device, or where speculation stops paying off.",
    "speclab simulate results/runs/quickstart-20260101-120000 --device h100 --device a100", run_simulate};

}  // namespace speclab
