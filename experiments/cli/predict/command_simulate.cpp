#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "experiments/cli/command.h"
#include "experiments/cli/row_times_text.h"
#include "experiments/metrics/run_data.h"
#include "experiments/simulate/device_file.h"
#include "experiments/simulate/repricing.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

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
  return batches;
}

int simulate_run(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()(
      "device", po::value<std::vector<std::string>>()->composing(),
      "a name in configs/devices, a device file, or the folder of a run on that device; any "
      "number of times")("batch", po::value<std::string>()->default_value("1"),
                         "numbers of sequences that the device decodes at the same time, such as 1,8,64")(
      "limit", po::value<double>(),
      "with a run as device: exit code 1 if a simulated speedup is off by more than this fraction")(
      "export", "print the machine of RUN as a device file instead")("json", "print JSON");
  const auto values = parse_arguments(command, arguments, options, {"RUN"});
  if (!values) return kOk;
  const std::string folder = required(*values, "RUN", command);
  if (values->count("export") > 0) {
    fmt::print("{}\n", exported_device(folder).dump(2));
    return kOk;
  }
  if (values->count("device") == 0) {
    throw Error({.what = "speclab simulate",
                 .got = "no --device",
                 .expected = "a device to simulate, or --export",
                 .advice = "configs/devices lists devices: for example --device h100."});
  }
  const RunData run = load_run(folder);
  const std::vector<int> batches = parse_batches((*values)["batch"].as<std::string>());
  json all = json::array();
  double worst = 0;
  int compared = 0;
  for (const std::string& name : (*values)["device"].as<std::vector<std::string>>()) {
    all.push_back(repriced(run, open_device(name), batches));
    for (const json& row : all.back()["cases"]) {
      if (!row["error"].is_number()) continue;
      worst = std::max(worst, std::abs(row["error"].get<double>()));
      ++compared;
    }
    if (values->count("json") == 0)
      fmt::print("{}{}\n", all.size() > 1 ? "\n" : "", repriced_text(all.back()));
  }
  if (values->count("json") > 0) fmt::print("{}\n", all.dump(1));
  if (values->count("limit") > 0 && compared == 0) {
    throw Error({.what = "--limit",
                 .got = "no case with a simulated and a measured speedup",
                 .expected = "--device with the folder of a run that has cases of RUN, and --batch 1",
                 .advice = "Without --limit nothing is compared."});
  }
  return values->count("limit") > 0 && worst > (*values)["limit"].as<double>() ? kCheckFailed : kOk;
}

int run_simulate(const Command& command, const std::vector<std::string>& arguments) {
  return reading_records(command, [&] { return simulate_run(command, arguments); });
}

}  // namespace

const Command kSimulateCommand = {
    "simulate", "RUN --device NAME... [--batch LIST] [--json], or: speclab simulate RUN --export",
    "Simulates what a run would have cost on another device, from the acceptance of the run and the times of "
    "the device. Shows time, speedup, best gamma and break-even acceptance, and, where the device is another "
    "run, "
    "the speedups that were measured there.",
    "speclab simulate results/runs/quickstart-20260101-120000 --device h100 --device a100", run_simulate};

}  // namespace speclab
