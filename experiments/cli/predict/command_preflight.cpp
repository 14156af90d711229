#include <boost/program_options.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ctime>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/measure/run_result.h"
#include "experiments/cli/command.h"
#include "experiments/metrics/run_data.h"
#include "experiments/preflight/plan.h"
#include "experiments/preflight/verdict.h"
#include "experiments/run/dry_run.h"
#include "experiments/run/runner.h"

namespace speclab {
namespace po = boost::program_options;
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

/// The options of the command line.
struct PreflightWords {
  PreflightPlan::Wish wish;
  std::string config, out;
  std::vector<std::string> devices;
  BackendChoice backend;
  bool resume = false, check = true;
};

/// The draft in the form of a config: the path of a model (DRAFT), or a number of the target's layers
/// (--keep-layers).
json draft_of(const po::variables_map& values) {
  const bool path = values.count("DRAFT") > 0, layers = values.count("keep-layers") > 0;
  if (path == layers) {
    throw Error({.what = "speclab preflight",
                 .got = path ? "DRAFT and --keep-layers" : "neither DRAFT nor --keep-layers",
                 .expected = "one draft: the path of a model, or a number of the target's layers",
                 .advice = "For example: speclab preflight TARGET --keep-layers 20."});
  }
  if (path) return {{"model", values["DRAFT"].as<std::string>()}};
  return {{"layers", {{"keep", values["keep-layers"].as<int>()}}}};
}

int positive(const po::variables_map& values, const char* name, int most) {
  if (values.count(name) == 0) return 0;
  const int value = values[name].as<int>();
  if (value >= 1 && value <= most) return value;
  throw Error({.what = fmt::format("--{}", name),
               .got = std::to_string(value),
               .expected = fmt::format("1 to {}", most),
               .advice = ""});
}

/// Runs one of the two experiments, the trace or the check. Returns false if lines or estimates failed or
/// texts differ from their reference. `stopped` says whether a signal stopped the run.
bool run_part(Experiment experiment, const fs::path& folder, const PreflightWords& words, Progress& progress,
              bool* stopped) {
  const RunOutcome outcome = run_experiment({.experiment = std::move(experiment),
                                             .backend = words.backend,
                                             .out = folder,
                                             .resume = words.resume && path_exists(folder / "config.json"),
                                             .command_line = command_line(),
                                             .interrupted = interrupted},
                                            progress);
  *stopped = outcome.interrupted;
  if (outcome.failed + outcome.unequal + outcome.failed_estimates > 0)
    progress.warn(fmt::format(
        "{} failed lines, {} failed estimates, {} texts that differ from their reference; {} lists them",
        outcome.failed, outcome.failed_estimates, outcome.unequal, (folder / "summary.json").string()));
  return outcome.failed + outcome.unequal + outcome.failed_estimates == 0;
}

int preflight(const PreflightWords& words, bool as_json, bool quiet) {
  std::vector<SimulatedDevice> devices;  // opened first: a wrong name should not cost a run
  for (const std::string& name : words.devices) devices.push_back(open_device(name));
  const PreflightPlan plan(words.config, words.wish);
  Experiment trace = plan.trace();
  require_files({&trace, 1});
  const fs::path folder =
      words.out.empty() ? fs::path("results") / "runs" /
                              fmt::format("preflight-{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)))
                        : fs::path(words.out);
  catch_interrupts();
  Progress progress(quiet);
  const auto interrupted_text = [&] {
    progress.warn(
        fmt::format("interrupted; repeat the command with --out {} --resume to go on", folder.string()));
    return kInterrupted;
  };
  bool stopped = false, good = run_part(std::move(trace), folder / "trace", words, progress, &stopped);
  if (stopped) return interrupted_text();
  json verdict = preflight_verdict(load_run(folder / "trace"), devices);
  if (words.check) {
    const int length = verdict["lengths"][verdict["best"].get<std::size_t>()]["gamma"];
    good = run_part(plan.check(verdict["case"], length), folder / "check", words, progress, &stopped) && good;
    if (stopped) return interrupted_text();
    add_check(verdict, load_run(folder / "check"));
  }
  write_json_file(folder / "preflight.json", verdict);
  fmt::print("{}\n", as_json ? verdict.dump(1) : preflight_text(verdict));
  if (!as_json) fmt::print("Record: {}\n", folder.string());
  const bool contradicted = !verdict["check"].is_null() && verdict["check"]["contradicts"].get<bool>();
  return good && !contradicted ? kOk : kCheckFailed;
}

int run_preflight(const Command& command, const std::vector<std::string>& arguments) {
  PreflightWords words;
  po::options_description options;
  options.add_options()("keep-layers", po::value<int>(),
                        "instead of DRAFT: draft with this many layers of the target, spread evenly")(
      "prompts", po::value(&words.wish.prompts),
      "JSONL file of prompts; the trace takes the first, third, ... prompt of each category, the check the "
      "others")("per-category", po::value<int>(),
                "prompts of each category in each of the two runs; default 1")(
      "tokens", po::value<int>(), "new tokens of each turn; default 64")(
      "gamma", po::value<int>(), "longest draft that is considered; default 8")(
      "simulate", po::value(&words.devices)->composing(),
      "also simulate this device, as speclab simulate does; any number of times")(
      "no-check", "only predict; do not run the recommended draft length on other prompts")(
      "config", po::value(&words.config)->default_value("configs/preflight.json"),
      "config of the trace; name another file to trace other strategies or options")(
      "out", po::value(&words.out), "folder of the runs; default results/runs/preflight-TIME")(
      "resume", "go on with the interrupted preflight in --out")("json", "print JSON")(
      "quiet,q", "show no progress on stderr");
  add_backend_options(options, words.backend);
  const auto values = parse_arguments(command, arguments, options, {"TARGET", "DRAFT"});
  if (!values) return kOk;
  words.wish.target = required(*values, "TARGET", command);
  words.wish.draft = draft_of(*values);
  words.wish.per_category = positive(*values, "per-category", 1000);
  words.wish.tokens = positive(*values, "tokens", 1 << 20);
  words.wish.longest = positive(*values, "gamma", 32);
  words.resume = values->count("resume") > 0;
  words.check = values->count("no-check") == 0;
  if (words.resume && words.out.empty()) {
    throw Error({.what = "--resume",
                 .got = "no --out",
                 .expected = "the folder of the preflight to resume",
                 .advice = "The interrupted command printed it."});
  }
  return preflight(words, values->count("json") > 0, values->count("quiet") > 0);
}

}  // namespace

const Command kPreflightCommand = {
    "preflight", "TARGET DRAFT [options], or: speclab preflight TARGET --keep-layers N",
    "Says whether a draft is worth it for a target on this machine: alpha, c, t(n), the best draft length "
    "with "
    "its predicted speedup, the alpha below which no length gains, and a short real run on other prompts as "
    "a "
    "check. All decoding is greedy. Exit code 1: lines failed, or the check contradicts the verdict.",
    "speclab preflight models/SmolLM2-135M-Instruct.Q4_1.gguf models/draft/smollm2-135m-instruct",
    run_preflight};

}  // namespace speclab
