#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/measure/run_result.h"
#include "experiments/command.h"
#include "experiments/lookahead_devices.h"
#include "experiments/lookahead_fit.h"
#include "experiments/run_folder.h"
#include "experiments/run_plan.h"
#include "experiments/runner.h"
#include "experiments/table.h"

namespace speclab {
namespace po = boost::program_options;
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

/// results/runs/NAME-TIME for a new run, the newest results/runs/NAME-* to go on with.
fs::path default_folder(const std::string& name, bool resume) {
  const fs::path runs = fs::path("results") / "runs";
  if (!resume) return runs / fmt::format("{}-{:%Y%m%d-%H%M%S}", name, fmt::localtime(std::time(nullptr)));
  std::vector<fs::path> found;
  for (const fs::path& path : folder_entries(runs)) {
    const std::string folder = path.filename().string();
    if (folder.starts_with(name + "-") && folder.size() == name.size() + 16) found.push_back(path);
  }
  if (found.empty()) {
    throw Error({.what = "--resume",
                 .got = fmt::format("no run of {} in {}", name, runs.string()),
                 .expected = "a run to go on with",
                 .advice = "Name its folder with --out."});
  }
  return *std::max_element(found.begin(), found.end());
}

Shard parse_shard(const std::string& text) {
  Shard shard;
  int end = 0;
  if (std::sscanf(text.c_str(), "%d/%d%n", &shard.i, &shard.n, &end) != 2 ||
      end != static_cast<int>(text.size()) || shard.i < 1 || shard.i > shard.n) {
    throw Error({.what = "--shard",
                 .got = text,
                 .expected = "i/n with 1 <= i <= n",
                 .advice = "For example --shard 2/4."});
  }
  return shard;
}

void print_plan(const Experiment& experiment, const Shard& shard, bool as_json) {
  if (as_json) {
    fmt::print("{}\n", experiment.resolved().dump(1));
    return;
  }
  Table table{.header = {"case", "draft", "rule", "class", "reference"}, .rows = {}, .right = {}};
  for (const CaseSpec& spec : experiment.cases) {
    table.rows.push_back(
        {spec.id, spec.draft.empty() ? "—" : spec.draft, std::string(spec.generation.acceptance_rule().name),
         std::string(to_string(spec.loss_class())),
         spec.reference.empty() ? (spec.added ? "itself (added)" : "itself") : spec.reference});
  }
  const std::size_t lines = plan_lines(experiment, shard).size(),
                    of_prompt = experiment.cases.size() * experiment.seeds.size() *
                                static_cast<std::size_t>(experiment.repeats);
  fmt::print("{}\n{} cases x {} prompts x {} seeds x {} repeats = {} lines\n", to_text(table),
             experiment.cases.size(), lines / of_prompt, experiment.seeds.size(), experiment.repeats, lines);
}

/// What was asked for beside the experiment.
struct Wanted {
  std::string config, shard_text;
  BackendChoice backend;
  Shard shard;
  bool resume = false, as_json = false;
};

/// Runs it into `folder` and prints its table; adds its summary to `summaries` when JSON is wanted.
int run_one(Experiment experiment, const fs::path& folder, bool resume, const Wanted& wanted, Progress& progress, json& summaries) {
  const std::string target = experiment.target_name;
  const RunOutcome outcome = run_experiment({.experiment = std::move(experiment),
                                             .backend = wanted.backend,
                                             .out = folder,
                                             .resume = resume,
                                             .shard = wanted.shard,
                                             .command_line = command_line(),
                                             .interrupted = interrupted},
                                            progress);
  const json summary = read_json_file(folder / "summary.json");
  if (wanted.as_json) {
    summaries[target] = summary;
  } else {
    if (!target.empty()) fmt::print("{}\n", target);
    fmt::print("{}\n", to_text(summary_table(summary)));
    fmt::print("{}{}", published_text(summary),
               lookahead_text(summary) + lookahead_devices_text(summary["lookahead_devices"]));
    if (!summary["noise_floor"].is_null())
      fmt::print("Differences of time below {:.1f} % are noise.\n",
                 100 * summary["noise_floor"].get<double>());
    fmt::print("Record: {}\n", folder.string());
  }
  if (outcome.interrupted) {
    const fs::path whole = target.empty() ? folder : folder.parent_path();
    progress.note(fmt::format(
        "interrupted; finished lines are kept. Go on with: speclab run {} --resume{} --out {}", wanted.config,
        wanted.shard_text.empty() ? "" : " --shard " + wanted.shard_text, whole.string()));
    return kInterrupted;
  }
  if (wanted.shard.n > 1 && !summary["complete"].get<bool>())
    progress.note(fmt::format("shard {}/{} is done; another one: speclab run {} --shard i/{} --resume --out {}",
                              wanted.shard.i, wanted.shard.n, wanted.config, wanted.shard.n, folder.string()));
  if (outcome.failed > 0)
    progress.note(fmt::format("{} lines failed; summary.json lists them", outcome.failed));
  if (outcome.unequal > 0)
    progress.note(
        fmt::format("{} lines differ from their reference although they must not", outcome.unequal));
  return outcome.failed + outcome.unequal > 0 ? kCheckFailed : kOk;
}

/// One target after the other, each a whole run in a folder of its own beside targets.json.
int run_targets(std::vector<Experiment> experiments, const fs::path& folder, const Wanted& wanted, Progress& progress,
                json& summaries) {
  json names = json::array();
  for (const Experiment& experiment : experiments) names.push_back(experiment.target_name);
  const json header = {{"schema_version", kSchemaVersion},
                       {"name", experiments.front().name},
                       {"description", experiments.front().description},
                       {"targets", names}};
  for (const Experiment& experiment : experiments) check_models(experiment);  // the last one's, too, before hours pass
  const TargetsFolder held(folder, wanted.resume, header, command_line());
  int status = kOk;
  for (Experiment& experiment : experiments) {
    const fs::path own = folder / experiment.target_name;
    const bool resume = wanted.resume && path_exists(own / "config.json");
    const int code = run_one(std::move(experiment), own, resume, wanted, progress, summaries);
    if (code == kInterrupted) return code;
    status = std::max(status, code);
  }
  return status;
}

int run(const Command& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> settings;
  std::string filter, out;
  Wanted wanted;
  po::options_description options;
  options.add_options()("set", po::value(&settings)->composing(), "path=value, changes the config")(
      "filter", po::value(&filter), "regular expression: only these cases, with their references")(
      "out", po::value(&out), "folder of the run; default results/runs/NAME-TIME")(
      "resume", "go on with an interrupted run")("dry-run", "check config and options, show the cases, run nothing")(
      "shard", po::value(&wanted.shard_text),
      "i/n: every n-th prompt from the i-th on; the other shards go into the same --out with --resume")(
      "json", "print the summary (or, with --dry-run, the resolved config) as JSON")("quiet,q",
                                                                                     "no progress");
  add_backend_options(options, wanted.backend);
  const auto values = parse_arguments(command, arguments, options, {"CONFIG"});
  if (!values) return kOk;
  wanted.config = required(*values, "CONFIG", command);
  std::vector<Experiment> experiments = load_experiments(wanted.config, settings);
  if (!filter.empty()) {
    for (Experiment& experiment : experiments) filter_cases(experiment, filter);
  }
  if (!wanted.shard_text.empty()) wanted.shard = parse_shard(wanted.shard_text);
  wanted.as_json = values->count("json") > 0;
  wanted.resume = values->count("resume") > 0;
  const bool several = !experiments.front().target_name.empty();
  if (values->count("dry-run") > 0) {
    check_backend(wanted.backend);
    if (several && wanted.as_json) {
      json all = json::object();
      for (const Experiment& experiment : experiments) all[experiment.target_name] = experiment.resolved();
      fmt::print("{}\n", all.dump(1));
      return kOk;
    }
    for (const Experiment& experiment : experiments) {
      if (several) fmt::print("{}: {} {}\n", experiment.target_name, experiment.target, to_json(experiment.inflate).dump());
      print_plan(experiment, wanted.shard, wanted.as_json);
    }
    return kOk;
  }
  const fs::path folder = out.empty() ? default_folder(experiments.front().name, wanted.resume) : fs::path(out);
  catch_interrupts();
  Progress progress(values->count("quiet") > 0);
  json summaries = json::object();
  const int status = several ? run_targets(std::move(experiments), folder, wanted, progress, summaries)
                             : run_one(std::move(experiments.front()), folder, wanted.resume, wanted, progress, summaries);
  if (wanted.as_json) fmt::print("{}\n", (several ? summaries : summaries[""]).dump(1));
  return status;
}

}  // namespace

const Command kRunCommand = {
    "run", "CONFIG [options]",
    "Runs an experiment: every case on every prompt, beside its reference and its theory.",
    "speclab run configs/quickstart.json --set prompts.limit=2 --filter gamma=4", run};

}  // namespace speclab
