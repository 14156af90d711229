#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "core/base/error.h"
#include "core/measure/run_result.h"
#include "experiments/command.h"
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
  if (fs::exists(runs)) {
    for (const auto& entry : fs::directory_iterator(runs)) {
      const std::string folder = entry.path().filename().string();
      if (folder.starts_with(name + "-") && folder.size() == name.size() + 16) found.push_back(entry.path());
    }
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

int run(const Command& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> settings;
  std::string filter, out, shard;
  BackendChoice backend;
  po::options_description options;
  options.add_options()("set", po::value(&settings)->composing(), "path=value, changes the config")(
      "filter", po::value(&filter), "regular expression: only these cases, with their references")(
      "out", po::value(&out), "folder of the run; default results/runs/NAME-TIME")(
      "resume", "go on with an interrupted run")("dry-run", "show the cases, run nothing")(
      "shard", po::value(&shard),
      "i/n: every n-th prompt from the i-th on; the other shards go into the same --out with --resume")(
      "json", "print the summary (or, with --dry-run, the resolved config) as JSON")("quiet,q",
                                                                                     "no progress");
  add_backend_options(options, backend);
  const auto values = parse_arguments(command, arguments, options, {"CONFIG"});
  if (!values) return kOk;
  Experiment experiment = load_experiment(required(*values, "CONFIG", command), settings);
  if (!filter.empty()) filter_cases(experiment, filter);
  const Shard part = shard.empty() ? Shard{} : parse_shard(shard);
  const bool as_json = values->count("json") > 0;
  if (values->count("dry-run") > 0) {
    print_plan(experiment, part, as_json);
    return kOk;
  }
  const bool resume = values->count("resume") > 0;
  const fs::path folder = out.empty() ? default_folder(experiment.name, resume) : fs::path(out);
  catch_interrupts();
  Progress progress(values->count("quiet") > 0);
  const RunOutcome outcome = run_experiment({.experiment = std::move(experiment),
                                             .backend = backend,
                                             .out = folder,
                                             .resume = resume,
                                             .shard = part,
                                             .command_line = command_line(),
                                             .interrupted = interrupted},
                                            progress);
  const json summary = read_json_file(folder / "summary.json");
  if (as_json) {
    fmt::print("{}\n", summary.dump(1));
  } else {
    fmt::print("{}\n", to_text(summary_table(summary)));
    if (!summary["noise_floor"].is_null())
      fmt::print("Differences of time below {:.1f} % are noise.\n",
                 100 * summary["noise_floor"].get<double>());
    fmt::print("Record: {}\n", folder.string());
  }
  if (outcome.interrupted) {
    progress.note(fmt::format(
        "interrupted; finished lines are kept. Go on with: speclab run {} --resume{} --out {}",
        required(*values, "CONFIG", command), shard.empty() ? "" : " --shard " + shard, folder.string()));
    return kInterrupted;
  }
  if (part.n > 1 && !summary["complete"].get<bool>())
    progress.note(
        fmt::format("shard {}/{} is done; another one: speclab run {} --shard i/{} --resume --out {}", part.i,
                    part.n, required(*values, "CONFIG", command), part.n, folder.string()));
  if (outcome.failed > 0)
    progress.note(fmt::format("{} lines failed; summary.json lists them", outcome.failed));
  if (outcome.unequal > 0)
    progress.note(
        fmt::format("{} lines differ from their reference although they must not", outcome.unequal));
  return outcome.failed + outcome.unequal > 0 ? kCheckFailed : kOk;
}

}  // namespace

const Command kRunCommand = {
    "run", "CONFIG [options]",
    "Runs an experiment: every case on every prompt, beside its reference and its theory.",
    "speclab run configs/quickstart.json --set prompts.limit=2 --filter gamma=4", run};

}  // namespace speclab
