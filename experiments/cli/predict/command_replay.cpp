#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "core/base/cpu_topology.h"
#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/standard_streams.h"
#include "core/decoding/drafting/schedules/controller.h"
#include "core/measure/run_result.h"
#include "experiments/analysis/acceptance_by_entropy.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/cli/command.h"
#include "experiments/cli/predict/replay_modes.h"
#include "experiments/cli/predict/row_times_text.h"
#include "experiments/metrics/run_data.h"
#include "experiments/simulate/case_pricing.h"
#include "experiments/simulate/device_file.h"
#include "experiments/simulate/replay.h"
#include "experiments/simulate/replay/mix_replay.h"
#include "experiments/simulate/replay/rank_trace.h"
#include "experiments/simulate/replay/search.h"
#include "experiments/simulate/replay/tree_replay.h"
#include "experiments/simulate/run_match.h"
#include "experiments/simulate/run_shapes.h"
#include "experiments/simulate/table_holes.h"

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

std::vector<std::string> controller_files(const po::variables_map& values) {
  if (values.count("controller") == 0) return {};
  return values["controller"].as<std::vector<std::string>>();
}

/// The schedules to replay: the constant length, one schedule for each threshold, the named schedules with
/// their default options, and the schedule of each controller with the threshold in its file.
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
  for (const std::string& file : controller_files(values)) {
    ScheduleOptions schedule;
    schedule.schedule = Controller::read(file).schedule();
    schedule.controller = file;
    out.push_back(schedule);
  }
  return out;
}

/// Says which traces of the run cannot be replayed.
void note_other_traces(const RunData& run) {
  for (const auto& data : run.cases) {
    if (!is_trace(*data)) continue;
    if (const std::string reason = why_not_replayed(*data); !reason.empty())
      print_status("{}: not replayed; {}\n", data->id(), reason);
  }
}

/// The default: a table of settings, the oracles, and acceptance by entropy.
int replay_settings(const po::variables_map& values, const RunData& run) {
  const std::vector<Trace> traces = read_traces(run);
  json out = replayed(traces, run.calibration, parse_gammas(values["gamma"].as<std::string>()),
                      parse_schedules(values));
  out["entropy"] = json::array();
  std::string text = values.count("json") > 0 ? "" : replay_text(out);
  for (const Trace& trace : traces) {
    const json acceptance = acceptance_by_entropy(*trace.data);
    if (acceptance.is_null()) continue;
    out["entropy"].push_back(acceptance);
    text += "\n" + acceptance_by_entropy_text(acceptance);
  }
  fmt::print("{}\n", values.count("json") > 0 ? out.dump(1) : text);
  return kOk;
}

/// Replays mixes of the run's drafters.
int replay_of_mixes(const po::variables_map& values, const RunData& run) {
  const std::vector<Trace> traces = read_traces(run);
  std::vector<Mix> mixes;
  for (const std::string& text : values["mix"].as<std::vector<std::string>>())
    mixes.push_back(parse_mix(text, traces));
  print_json_or(values, replayed_mixes(traces, run.calibration, mixes), replayed_mixes_text);
  return kOk;
}

/// Replays trees from the ranks of the run.
int replay_of_trees(const po::variables_map& values, const RunData& run) {
  std::vector<NamedTrees> trees;
  for (const std::string& name : values["tree"].as<std::vector<std::string>>())
    trees.push_back(named_trees(name));
  const std::vector<RankTrace> traces = read_rank_traces(run);
  if (traces.empty()) {
    throw Error(
        {.what = "--tree",
         .got = "a run without a trace of trees",
         .expected = "a trace with a case that drafts a tree of the draft's best tokens",
         .advice =
             "Add such a case (\"widths\": [8], \"children\": \"best\") to the config of speclab trace."});
  }
  print_json_or(values, replayed_trees(traces, trees), replayed_trees_text);
  return kOk;
}

/// The machine of the run and the devices of --device. Each has the costs of every traced case; the costs are
/// absent for a case that cannot be priced there.
std::vector<SearchDevice> search_devices(const po::variables_map& values, const RunData& run,
                                         const std::vector<Trace>& traces) {
  std::vector<SearchDevice> devices(1, {.name = "machine of the run", .costs = {}});
  for (const Trace& trace : traces)
    devices.front().costs.push_back(calibration_of(*trace.data, run.calibration));
  if (values.count("device") == 0) return devices;
  for (const std::string& name : values["device"].as<std::vector<std::string>>()) {
    const SimulatedDevice device = open_device(name);
    const ModelShapes shapes = run_shapes(run.environment, device.weight_bytes, device.kv_bytes);
    SearchDevice& out =
        devices.emplace_back(SearchDevice{.name = device.name, .simulated = true, .costs = {}});
    const MatchedRun matched = with_models_of_device(run, name);
    for (const std::string& note : matched.notes) print_status("{}\n", note);
    for (const std::string& note :
         hole_notes(measured_rows_of(device_content(name)), largest_forwards(matched.run, 1)))
      print_status("{}\n", note);
    for (const Trace& trace : traces) {
      std::optional<theory::Calibration>& costs = out.costs.emplace_back();
      if (std::ranges::none_of(matched.run.cases, [&](const auto& data) { return data == trace.data; }))
        continue;
      try {
        const Pricing pricing{device, shapes, 1, mean_context(*trace.data)};
        costs = device_costs(PricedSteps(*trace.data), pricing);
      } catch (const Error& error) {
        print_status("{} cannot price {}: {}\n", device.name, trace.data->id(), error.what());
      }
    }
  }
  return devices;
}

int in_range(const po::variables_map& values, const char* name, int least, int most) {
  const int value = values[name].as<int>();
  if (value >= least && value <= most) return value;
  throw Error({.what = fmt::format("--{}", name),
               .got = std::to_string(value),
               .expected = fmt::format("{} to {}", least, most),
               .advice = ""});
}

/// Searches configurations and prints the fastest. With --csv, also writes all of them to a file.
int search_settings(const po::variables_map& values, const RunData& run) {
  constexpr std::size_t kPrinted = 10;
  const std::vector<Trace> traces = read_traces(run);
  SearchWish wish{.gammas = {},
                  .thresholds = in_range(values, "thresholds", 1, 1000),
                  .threads = in_range(values, "threads", 0, 1024),
                  .controllers = controller_files(values)};
  if (wish.threads == 0) wish.threads = usable_threads();
  if (values["gamma"].defaulted()) {
    int longest = 0;
    for (const Trace& trace : traces) longest = std::max(longest, longest_draft(trace));
    wish.gammas.resize(static_cast<std::size_t>(longest));
    std::iota(wish.gammas.begin(), wish.gammas.end(), 1);
  } else {
    wish.gammas = parse_gammas(values["gamma"].as<std::string>());
  }
  const std::vector<SearchDevice> devices = search_devices(values, run, traces);
  const Search search = search_replay(traces, devices, wish);
  if (search.results.empty()) {
    throw Error({.what = "--search",
                 .got = "nothing that can be priced",
                 .expected = "a trace with chains and calibrated costs, and draft lengths that it has",
                 .advice = "Record the trace with a calibration, or name a device with --device."});
  }
  if (values.count("csv") > 0)
    write_file(values["csv"].as<std::string>(), search_csv(traces, devices, search));
  print_json_or(values, search_json(traces, devices, search, kPrinted), search_text);
  return kOk;
}

int replay_run(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("gamma", po::value<std::string>()->default_value("1,2,3,4,6,8"),
                        "draft lengths to replay; with --search by default all that the trace has")(
      "confidence", po::value<std::string>(),
      "also replay drafts that stop after a token whose confidence is below a threshold: .3,.5,.7")(
      "product", po::value<std::string>(),
      "also replay drafts that stop once the product of confidences is below a threshold")(
      "entropy", po::value<std::string>(),
      "also replay drafts that stop after a token whose row has sqrt(entropy) above a threshold")(
      "schedule", po::value<std::string>(),
      "also replay these schedules with their default options: roc_confidence,adaptive_entropy,bandit")(
      "controller", po::value<std::vector<std::string>>()->composing(),
      "also replay the schedule of this trained controller (scripts/fit/fit_controller.py), with --search at "
      "many thresholds; any number of times")(
      "tree", po::value<std::vector<std::string>>()->composing(),
      "replay this tree instead: a tree file, or the number of children at each level, such as 3,2,1; any "
      "number of times. The trace needs a case that drafts trees of best tokens")(
      "search", "search all schedules, thresholds, lengths, drafters and devices; print the ten fastest")(
      "thresholds", po::value<int>()->default_value(20),
      "with --search: number of values of each schedule's parameter")(
      "device", po::value<std::vector<std::string>>()->composing(),
      "with --search: also price the steps on this simulated device, see speclab simulate; any number of "
      "times")("threads", po::value<int>()->default_value(0),
               "with --search: number of threads; 0: every core that may be used")(
      "csv", po::value<std::string>(), "with --search: write all configurations to this file")(
      "mix", po::value<std::vector<std::string>>()->composing(),
      "replay this mix of drafters instead: parts of the ids of traced cases, with the longest draft of "
      "each, "
      "such as prompt_lookup:8+distilled:3; the first drafter that finds anything drafts; any number of "
      "times")("fitted",
               "predict lookahead decoding, Jacobi decoding and token recycling by laws that are fitted to "
               "the cases of "
               "RUN, which need not be a trace then")(
      "wng", po::value<std::vector<std::string>>()->composing(),
      "with --fitted: also predict this W,N,G, such as 7,5,7; any number of times")(
      "block", po::value<std::string>(),
      "with --fitted: also predict these blocks of Jacobi decoding: 4,8,16")(
      "recycled", po::value<std::vector<std::string>>()->composing(),
      "with --fitted: also predict this tree of token recycling, the number of children of each node in "
      "breadth-first order, such as 4,2,1; any number of times")(
      "check", po::value<std::string>(),
      "folder of a run of the same prompts: replay with the calibration of this run, and compare the result "
      "with its tau, its speedups and the times of its prompts")(
      "costs", po::value<std::string>(),
      "with --check: folder of the run whose calibration prices the steps; default: the run of --check. "
      "Cases "
      "that the run of --costs lacks count as not calibrated")(
      "laws", po::value<std::string>(),
      "with --check: folder of a run with settings of lookahead or Jacobi decoding, or with token recycling; "
      "laws that are fitted to it predict such cases")(
      "limit", po::value<double>(),
      "with --check: exit code 1 if an exactly replayed tau differs, if a replayed speedup is off by more "
      "than this fraction, or if the median error of the prompts' times is above --prompt-limit")(
      "prompt-limit", po::value<double>(), "with --limit: default the value of --limit")("json",
                                                                                         "print JSON");
  const auto values = parse_arguments(command, arguments, options, {"RUN"});
  if (!values) return kOk;
  const bool search = values->count("search") > 0, check = values->count("check") > 0,
             trees = values->count("tree") > 0, mixes = values->count("mix") > 0,
             laws = values->count("fitted") > 0;
  if (search + check + trees + mixes + laws > 1) {
    throw Error({.what = "speclab replay",
                 .got = "several of --search, --check, --tree, --mix and --fitted",
                 .expected = "only one of them",
                 .advice = ""});
  }
  if (!check)
    refuse_options(*values, "speclab replay without --check", {"limit", "prompt-limit", "costs", "laws"});
  else if (values->count("limit") == 0)
    refuse_options(*values, "speclab replay without --limit", {"prompt-limit"});
  if (!search)
    refuse_options(*values, "speclab replay without --search", {"thresholds", "device", "threads", "csv"});
  if (!laws) refuse_options(*values, "speclab replay without --fitted", {"wng", "block", "recycled"});
  const char* const mode = check   ? "--check"
                           : trees ? "--tree"
                           : mixes ? "--mix"
                           : laws  ? "--fitted"
                                   : "--search";
  if (check || trees || mixes || laws)
    refuse_options(*values, fmt::format("speclab replay with {}", mode), {"gamma", "controller"});
  if (check || trees || mixes || laws || search)
    refuse_options(*values, fmt::format("speclab replay with {}", mode),
                   {"confidence", "product", "entropy", "schedule"});
  const std::string folder = required(*values, "RUN", command);
  const RunData run = load_run(folder);
  require_lines(run, folder);
  if (laws) return replay_of_laws(*values, run);
  note_other_traces(run);
  if (mixes) return replay_of_mixes(*values, run);
  if (check) return check_against_run(*values, run);
  if (trees) return replay_of_trees(*values, run);
  if (search) return search_settings(*values, run);
  return replay_settings(*values, run);
}

int run_replay(const Command& command, const std::vector<std::string>& arguments) {
  return reading_records(command, [&] { return replay_run(command, arguments); });
}

}  // namespace

void print_json_or(const po::variables_map& values, const json& out, std::string (*text)(const json&)) {
  fmt::print("{}\n", values.count("json") > 0 ? out.dump(1) : text(out));
}

const Command kReplayCommand = {
    "replay",
    "RUN [options], or: speclab replay RUN --search | --tree FILE | --mix CASE+CASE | --fitted | --check RUN",
    "Replays a trace, which is a run that drafts at every position of its texts (speclab trace). Predicts "
    "tau "
    "and speedup for schedules, trees and shorter drafts, the speedup of choices that only hindsight allows, "
    "and how much slower each schedule is than these. Constant lengths are priced with the times of the "
    "traced case, which may include the computation of confidences or entropies; the ratio to the best "
    "constant length then favours schedules. No model runs. Every prediction is marked: exact, an "
    "expectation "
    "over sampled texts, or fitted. Exit code 1: the run of --check differs by more than --limit allows.",
    "speclab replay results/runs/trace-20260101-120000 --gamma 1,2,4,8 --confidence .4,.6", run_replay};

}  // namespace speclab
