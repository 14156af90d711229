#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/standard_streams.h"
#include "core/measure/run_result.h"
#include "experiments/cli/command.h"
#include "experiments/analysis/lookahead_devices.h"
#include "experiments/analysis/lookahead_fit.h"
#include "experiments/analysis/lookahead_verdict.h"
#include "experiments/run/resume.h"
#include "experiments/metrics/record_files.h"
#include "experiments/cli/predict/row_times_text.h"
#include "experiments/config/config_file.h"
#include "experiments/run/runner.h"
#include "experiments/metrics/summary.h"

namespace speclab {
namespace po = boost::program_options;
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

int lookahead(const Command& command, const std::vector<std::string>& arguments) {
  std::string out, times;
  BackendChoice backend;
  Link link;
  po::options_description options;
  options.add_options()("measure", "measure the recommended setting and autoregressive decoding")(
      "out", po::value(&out), "folder for the run of --measure; default RUN/verdict")(
      "resume", "resume an interrupted --measure")(
      "t", po::value(&times),
      "also recommend a setting for a machine with these forward times, as ROWS:TIME pairs with times in any "
      "unit: 1:1,128:1,256:2")("link-us", po::value(&link.latency_us),
                               "for steps divided over devices: latency of a message in microseconds")(
      "link-gbytes", po::value(&link.gigabytes_per_second),
      "for steps divided over devices: gigabytes per second of a link; 0: no limit")("json", "print JSON")(
      "quiet,q", "show no progress");
  add_backend_options(options, backend);
  const auto values = parse_arguments(command, arguments, options, {"RUN"});
  if (!values) return kOk;
  const fs::path folder = required(*values, "RUN", command);
  const fs::path own = out.empty() ? folder / "verdict" : fs::path(out);
  if (link.latency_us < 0 || link.gigabytes_per_second < 0)
    throw Error({"--link-us, --link-gbytes", "a negative number", "0 or more", ""});
  const bool measure = values->count("measure") > 0;
  if (!measure) refuse_options(*values, "speclab lookahead without --measure", {"resume"});
  auto [summary, stored] = read_summary(folder);
  if (stored) {
    const bool other_link = link.latency_us > 0 || link.gigabytes_per_second > 0;
    print_status("{} has no raw lines; using its summary.json{}.\n", folder.string(),
                 other_link ? ", so --link-us and --link-gbytes have no effect" : "");
  }
  if (!summary["lookahead_devices"].empty()) {
    if (!stored)
      summary["lookahead_devices"] = lookahead_devices(load_run(folder).cases, summary["calibration"], link);
    // A run without two cases on one device, such as one setting on several numbers of devices, has no fitted
    // law and no verdict.
    if (summary["lookahead"].empty()) {
      if (measure) {
        throw Error(
            {.what = "speclab lookahead --measure",
             .got = fmt::format("{}, a run over several devices to which no law was fitted", folder.string()),
             .expected = "a run with two cases on one device that differ in W, N and G alone",
             .advice = "For example a run of configs/lookahead_wng.json."});
      }
      refuse_options(*values, "speclab lookahead with a run over devices to which no law was fitted", {"t"});
      if (values->count("json") > 0)
        fmt::print("{}\n", json({{"devices", summary["lookahead_devices"]}}).dump(1));
      else fmt::print("{}", lookahead_devices_text(summary["lookahead_devices"]));
      return kOk;
    }
  }
  if (!times.empty()) {
    for (json& fit : summary["lookahead"])
      fit["machines"].push_back(lookahead_machine("t(n) = " + times, fit, parse_row_times(times)));
  }
  const json& fit = largest_lookahead_fit(summary);
  int code = kOk;
  if (measure) {
    const json config = follow_up_config(read_run_config(folder), summary);
    catch_interrupts();
    Progress progress(values->count("quiet") > 0);
    const RunOutcome outcome = run_experiment({.experiment = parse_experiment(config, config["name"]),
                                               .backend = backend,
                                               .out = own,
                                               .resume = values->count("resume") > 0,
                                               .command_line = command_line(),
                                               .interrupted = interrupted},
                                              progress);
    if (outcome.interrupted) {
      progress.warn(fmt::format(
          "interrupted; finished lines are kept. Resume with: speclab lookahead {} --measure --resume{}",
          shell_word(folder.string()), out.empty() ? "" : " --out " + shell_word(out)));
      return kInterrupted;
    }
    if (outcome.failed + outcome.unequal > 0) {
      progress.warn(fmt::format("exit code 1: {} lines failed, {} differ from their reference",
                                outcome.failed, outcome.unequal));
      code = kCheckFailed;
    }
  }
  const json verdict =
      lookahead_verdict(summary, path_exists(own / "config.json") ? summarise_run(own) : json());
  if (measure && !verdict["measured"].empty()) write_json_file(own / "verdict.json", verdict);
  if (verdict["never_slower"] == false) code = kCheckFailed;
  if (values->count("json") > 0)
    fmt::print("{}\n",
               json({{"fit", fit}, {"verdict", verdict}, {"devices", summary["lookahead_devices"]}}).dump(1));
  else
    fmt::print("{}\n{}{}\n", lookahead_text(summary), lookahead_devices_text(summary["lookahead_devices"]),
               to_verdict_text(verdict));
  if (verdict["measured"].empty() && path_exists(own / "verdict.json"))
    print_status("{} holds the measured verdict. The lines of that run are missing.\n",
                 (own / "verdict.json").string());
  else if (verdict["measured"].empty())
    print_status("The recommendation is not measured yet. Measure it with: speclab lookahead {} --measure\n",
                 shell_word(folder.string()));
  return code;
}

int run_lookahead(const Command& command, const std::vector<std::string>& arguments) {
  return reading_records(command, [&] { return lookahead(command, arguments); });
}

}  // namespace

const Command kLookaheadCommand = {
    "lookahead", "RUN [options]",
    "Fits the law of lookahead decoding to a run that sweeps W, N and G, recommends a setting for this "
    "machine and, with --measure, measures it. Exit code 1: the recommended setting is slower than "
    "autoregressive decoding, beyond the noise, or a measured line failed or differs from its reference.",
    "speclab lookahead results/runs/lookahead_wng-20260101-120000 --measure --t 1:1,128:1,256:2",
    run_lookahead};

}  // namespace speclab
