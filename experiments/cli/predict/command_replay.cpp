#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "experiments/cli/command.h"
#include "experiments/cli/row_times_text.h"
#include "experiments/metrics/run_data.h"
#include "experiments/simulate/replay.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

std::vector<int> parse_gammas(const std::string& text) {
  std::vector<int> gammas;
  for (const double number : parse_number_list(text, "--gamma")) {
    if (!(number >= 1 && number <= 64 && number == std::floor(number))) {
      throw Error({.what = "--gamma",
                   .got = fmt::format("{}", number),
                   .expected = "draft lengths from 1 to 64",
                   .advice = "For example --gamma 1,2,4,8."});
    }
    gammas.push_back(static_cast<int>(number));
  }
  return gammas;
}

const ScheduleInfo& schedule_named(const std::string& name) {
  if (const ScheduleInfo* info = recorded_schedule(name)) return *info;
  std::vector<std::string> known;
  for (const ScheduleInfo& info : schedules()) known.emplace_back(info.name);
  throw Error({.what = "--schedule",
               .got = "\"" + name + "\"",
               .expected = "names of schedules, separated by commas",
               .advice = suggest(name, known)});
}

/// The schedules to replay: the constant length, one schedule for each threshold, and the named schedules
/// with their default options.
std::vector<ScheduleOptions> parse_schedules(const po::variables_map& values) {
  std::vector<ScheduleOptions> out(1);
  const auto add = [&](const char* name, ScheduleRule rule, double ScheduleOptions::* threshold) {
    if (values.count(name) == 0) return;
    for (const double value : parse_number_list(values[name].as<std::string>(), fmt::format("--{}", name))) {
      ScheduleOptions schedule;
      schedule.schedule = rule;
      schedule.*threshold = value;
      out.push_back(schedule);
    }
  };
  add("confidence", ScheduleRule::confidence, &ScheduleOptions::confidence_threshold);
  add("product", ScheduleRule::product, &ScheduleOptions::product_threshold);
  add("entropy", ScheduleRule::entropy, &ScheduleOptions::entropy_threshold);
  if (values.count("schedule") > 0) {
    std::istringstream names(values["schedule"].as<std::string>());
    for (std::string name; std::getline(names, name, ',');) {
      ScheduleOptions schedule;
      schedule.schedule = schedule_named(name).rule;
      out.push_back(schedule);
    }
  }
  return out;
}

int replay_run(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("gamma", po::value<std::string>()->default_value("1,2,3,4,6,8"),
                        "draft lengths to replay")(
      "confidence", po::value<std::string>(),
      "also replay drafts that stop after a token whose confidence is below a threshold: .3,.5,.7")(
      "product", po::value<std::string>(),
      "also replay drafts that stop once the product of confidences is below a threshold")(
      "entropy", po::value<std::string>(),
      "also replay drafts that stop after a token whose row has a root of the entropy above a threshold")(
      "schedule", po::value<std::string>(),
      "also replay these schedules with their default options: roc_confidence,adaptive_entropy,bandit")(
      "check", po::value<std::string>(),
      "folder of a run of the same prompts: replay with the calibration of this run, and compare the result "
      "with its tau and speedups")(
      "limit", po::value<double>(),
      "with --check: exit code 1 if a replayed tau differs, or a replayed speedup is off by more than this "
      "fraction")("json", "print JSON");
  const auto values = parse_arguments(command, arguments, options, {"RUN"});
  if (!values) return kOk;
  if (values->count("check") == 0) refuse_options(*values, "speclab replay without --check", {"limit"});
  else
    refuse_options(*values, "speclab replay with --check",
                   {"gamma", "confidence", "product", "entropy", "schedule"});
  const RunData run = load_run(required(*values, "RUN", command));
  const std::vector<Trace> traces = read_traces(run);
  if (values->count("check") == 0) {
    const json out = replayed(traces, run.calibration, parse_gammas((*values)["gamma"].as<std::string>()),
                              parse_schedules(*values));
    fmt::print("{}\n", values->count("json") > 0 ? out.dump(1) : replay_text(out));
    return kOk;
  }
  const RunData measured = load_run((*values)["check"].as<std::string>());
  const json out = replay_check(traces, measured.calibration, measured);
  if (out.empty()) {
    throw Error({.what = "--check " + (*values)["check"].as<std::string>(),
                 .got = "no case with the strategy, the options and the prompts of a trace",
                 .expected = "a run of the same prompts with the drafters of the trace",
                 .advice = ""});
  }
  fmt::print("{}\n", values->count("json") > 0 ? out.dump(1) : replay_check_text(out));
  if (values->count("limit") == 0) return kOk;
  const double limit = (*values)["limit"].as<double>();
  const bool good = std::ranges::all_of(out, [&](const json& row) {
    const bool same_tau = row["tau"].is_number() &&
                          std::abs(row["tau"].get<double>() - row["replayed_tau"].get<double>()) < 1e-9;
    return same_tau && (!row["error"].is_number() || std::abs(row["error"].get<double>()) <= limit);
  });
  return good ? kOk : kCheckFailed;
}

int run_replay(const Command& command, const std::vector<std::string>& arguments) {
  return reading_records(command, [&] { return replay_run(command, arguments); });
}

}  // namespace

const Command kReplayCommand = {
    "replay",
    "RUN [--gamma LIST] [--confidence LIST] [--product LIST] [--entropy LIST] [--schedule NAMES] [--check "
    "RUN] "
    "[--json]",
    "Replays a trace, which is a run that drafts at every position of its texts (configs/trace.json). "
    "Predicts tau and speedup for shorter drafts and for schedules, and the speedup of choices that only "
    "hindsight allows. No model runs. Exit code 1 with --limit: a replayed tau or speedup differs from the "
    "run of --check.",
    "speclab replay results/runs/trace-20260101-120000 --gamma 1,2,4,8 --confidence .4,.6", run_replay};

}  // namespace speclab
