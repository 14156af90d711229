#include <boost/program_options.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/standard_streams.h"
#include "core/measure/run_result.h"
#include "experiments/cli/command.h"
#include "experiments/run/dry_run.h"
#include "experiments/analysis/strategy_theory.h"
#include "experiments/metrics/bound_verdict.h"
#include "experiments/metrics/noise/machine_load.h"
#include "experiments/run/resume.h"
#include "experiments/run/run_folder.h"
#include "experiments/run/run_plan.h"
#include "experiments/run/runner.h"
#include "experiments/config/config_file.h"
#include "experiments/config/settings.h"
#include "experiments/analysis/case_names.h"
#include "experiments/analysis/table.h"
#include "experiments/analysis/table_fit.h"

namespace speclab {
namespace po = boost::program_options;
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

/// The default folder: results/runs/NAME-TIME for a new run, the newest results/runs/NAME-TIME to resume.
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
                 .expected = "a run to resume",
                 .advice = "Name its folder: speclab run --resume DIR."});
  }
  return *std::max_element(found.begin(), found.end());
}

Shard parse_shard(const std::string& text) {
  Shard shard;
  const char* const end = text.data() + text.size();
  const auto i = std::from_chars(text.data(), end, shard.i);
  const bool slash = i.ec == std::errc() && i.ptr != end && *i.ptr == '/';
  const auto n = slash ? std::from_chars(i.ptr + 1, end, shard.n) : i;
  if (!slash || n.ec != std::errc() || n.ptr != end || shard.i < 1 || shard.i > shard.n) {
    throw Error({.what = "--shard",
                 .got = text,
                 .expected = fmt::format("i/n with 1 <= i <= n <= {}", std::numeric_limits<int>::max()),
                 .advice = "For example --shard 2/4."});
  }
  return shard;
}

/// The short names of the cases of an experiment, by id.
std::map<std::string, std::string> short_names_of(const Experiment& experiment) {
  std::vector<NamedCase> cases;
  for (const CaseSpec& spec : experiment.cases)
    cases.push_back({spec.id, std::string(spec.strategy.info().name)});
  const std::vector<std::string> names = short_names(cases);
  std::map<std::string, std::string> by_id;
  for (std::size_t i = 0; i < cases.size(); ++i) by_id[cases[i].id] = names[i];
  return by_id;
}

/// `width`: of the table; no value: the whole table.
void print_plan(const Experiment& experiment, const Shard& shard, bool as_json, std::optional<int> width) {
  if (as_json) {
    fmt::print("{}\n", experiment.resolved().dump(1));
    return;
  }
  Table table{.header = {"case", "draft", "rule", "class", "reference"},
              .rows = {},
              .right = {},
              .expendable = {"draft", "class", "rule"}};
  const std::map<std::string, std::string> names = short_names_of(experiment);
  const auto shown = [&](const std::string& id) { return width ? names.at(id) : id; };
  for (const CaseSpec& spec : experiment.cases) {
    table.rows.push_back(
        {shown(spec.id), spec.draft.empty() ? "—" : spec.draft,
         std::string(spec.generation.acceptance_rule().name), std::string(to_string(spec.loss_class())),
         spec.reference.empty() ? (spec.added ? "itself (added)" : "itself") : shown(spec.reference)});
  }
  const std::size_t lines = plan_lines(experiment, shard).size(),
                    of_prompt = experiment.cases.size() * experiment.seeds.size() *
                                static_cast<std::size_t>(experiment.repeats);
  fmt::print("{}\n{} cases x {} prompts x {} seeds x {} repeats = {} lines\n", fitted_text(table, width),
             experiment.cases.size(), lines / of_prompt, experiment.seeds.size(), experiment.repeats, lines);
}

/// The options of the command line.
struct Wanted {
  std::string config, filter, shard_text, costs;
  std::vector<std::string> settings, backend_words;
  BackendChoice backend;
  Shard shard;
  bool resume = false, as_json = false;
  std::optional<int> width;  ///< of tables on stdout; no value: whole tables

  /// The command that resumes the run in `folder`. If the user named a config, the full form follows the
  /// short one.
  std::string resume_command(const fs::path& folder) const {
    const std::string short_one =
        fmt::format("speclab run --resume {}{}", shell_word(folder.string()), shard_words(shard_text));
    if (config.empty()) return short_one;
    std::string words;
    for (const std::string& setting : settings) words += fmt::format(" --set {}", shell_word(setting));
    if (!filter.empty()) words += fmt::format(" --filter {}", shell_word(filter));
    if (!costs.empty()) words += fmt::format(" --costs {}", shell_word(costs));
    for (const std::string& word : backend_words) words += fmt::format(" {}", shell_word(word));
    return fmt::format("{}\nor in full: speclab run {}{}{} --resume --out {}", short_one, shell_word(config),
                       words, shard_words(shard_text), shell_word(folder.string()));
  }
  static std::string shard_words(const std::string& text) { return text.empty() ? "" : " --shard " + text; }
};

/// True if at least one case has a line.
bool has_lines(const json& summary) {
  return std::any_of(summary["cases"].begin(), summary["cases"].end(),
                     [](const json& one) { return one.value("lines", 0) > 0; });
}

/// Runs an experiment into `folder` and prints its table, or adds its summary to `summaries` for --json.
int run_one(Experiment experiment, const fs::path& folder, bool resume, const Wanted& wanted,
            Progress& progress, json& summaries) {
  const std::string target = experiment.target_name;
  const RunOutcome outcome = run_experiment({.experiment = std::move(experiment),
                                             .backend = wanted.backend,
                                             .out = folder,
                                             .resume = resume,
                                             .costs_of = wanted.costs,
                                             .shard = wanted.shard,
                                             .command_line = command_line(),
                                             .interrupted = interrupted},
                                            progress);
  const json summary = read_json_file(folder / "summary.json");
  if (wanted.as_json) {
    summaries[target] = summary;
  } else if (!has_lines(summary)) {
    progress.warn("nothing was measured, so there is no table");
  } else {
    if (!target.empty()) fmt::print("{}\n", target);
    fmt::print("{}{}\n", fitted_summary(summary, wanted.width), notes_text(summary));
    fmt::print("{}{}", published_text(summary), theory_text(summary));
    fmt::print("{}", machine_text(summary["machine"]));
    fmt::print("Record: {}\n", folder.string());
  }
  flush_output();  // the next target takes a while
  if (outcome.interrupted) {
    progress.warn(fmt::format("interrupted; finished lines are kept. Resume with: {}",
                              wanted.resume_command(target.empty() ? folder : folder.parent_path())));
    return kInterrupted;
  }
  if (wanted.shard.n > 1 && !summary["complete"].get<bool>())
    progress.note(
        fmt::format("shard {}/{} is done; run the others with: speclab run --shard i/{} --resume {} (or each "
                    "into a folder "
                    "of its own; speclab merge joins them)",
                    wanted.shard.i, wanted.shard.n, wanted.shard.n, shell_word(folder.string())));
  if (outcome.failed > 0)
    progress.warn(fmt::format("exit code 1: {} lines failed; {} lists them", outcome.failed,
                              (folder / "summary.json").string()));
  if (outcome.unequal > 0)
    progress.warn(fmt::format("exit code 1: {} lines differ from their reference although they must not",
                              outcome.unequal));
  if (outcome.failed_estimates > 0)
    progress.warn(fmt::format("exit code 1: {} estimates on finished texts failed; {} lists them",
                              outcome.failed_estimates, (folder / "summary.json").string()));
  const std::string wrong = wrong_rules_text(summary);
  if (!wrong.empty()) progress.warn("exit code 1: " + wrong.substr(0, wrong.size() - 1));
  return outcome.failed + outcome.unequal + outcome.failed_estimates > 0 || !wrong.empty() ? kCheckFailed
                                                                                           : kOk;
}

/// Runs one target after the other, each in a folder of its own beside targets.json.
int run_targets(std::vector<Experiment> experiments, const fs::path& folder, const json& header,
                const Wanted& wanted, Progress& progress, json& summaries) {
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

int dry_run(const std::vector<Experiment>& experiments, bool several, const Wanted& wanted) {
  check_backend(wanted.backend);
  if (several && wanted.as_json) {
    json all = json::object();
    for (const Experiment& experiment : experiments) all[experiment.target_name] = experiment.resolved();
    fmt::print("{}\n", all.dump(1));
  } else {
    for (const Experiment& experiment : experiments) {
      if (several)
        fmt::print("{}: {} {}\n", experiment.target_name, experiment.target,
                   to_json(experiment.inflate).dump());
      print_plan(experiment, wanted.shard, wanted.as_json, wanted.width);
    }
  }
  require_files(experiments);
  if (wanted.as_json) return kOk;
  for (const Experiment& experiment : experiments)
    fmt::print("{}{}\n", several ? experiment.target_name + ": " : "",
               time_estimate(experiment, wanted.shard, wanted.backend));
  return kOk;
}

int run_run(const Command& command, const std::vector<std::string>& arguments) {
  std::string out;
  Wanted wanted;
  po::options_description options;
  options.add_options()("set", po::value(&wanted.settings)->composing(), setting_help().c_str())(
      "filter", po::value(&wanted.filter),
      "run only the cases whose id matches this regular expression (RE2), and their references")(
      "out", po::value(&out), "folder of the run; default results/runs/NAME-TIME")(
      "resume",
      "resume an interrupted run. --resume DIR takes everything else from the folder; with a CONFIG it "
      "resumes "
      "the run in --out or the newest results/runs/NAME-TIME")(
      "dry-run", "check config, options and files, show the cases, estimate the time, run nothing")(
      "shard", po::value(&wanted.shard_text),
      "i/n: run every n-th prompt from the i-th on. Run the other shards with --resume into the same --out, "
      "or "
      "each into an --out of its own, for example on other machines; speclab merge joins them")(
      "costs", po::value(&wanted.costs),
      "folder of another run, or a file with a table of costs; the cases with \"budget\": \"auto\" or the "
      "schedule bandit use this table, so that their texts can be repeated. Default: a table is measured")(
      "json", "print the summary (or, with --dry-run, the resolved config) as JSON")(
      "quiet,q", "show no progress on stderr, only why the exit code is not 0");
  add_wide_option(options);
  add_backend_options(options, wanted.backend);
  const auto values = parse_arguments(command, arguments, options, {"CONFIG"});
  if (!values) return kOk;
  const std::string given = required(*values, "CONFIG", command);
  wanted.resume = values->count("resume") > 0;
  wanted.backend_words = backend_words(*values, wanted.backend);
  if (!wanted.shard_text.empty()) wanted.shard = parse_shard(wanted.shard_text);
  wanted.as_json = values->count("json") > 0;
  wanted.width = table_width(*values);
  std::error_code ignored;
  const bool of_folder = fs::is_directory(given, ignored);
  if (of_folder && (!wanted.resume || !out.empty() || !wanted.filter.empty())) {
    throw Error({.what = given,
                 .got = "a folder",
                 .expected = "a config file, or a run's folder with --resume and without --out and --filter",
                 .advice = "speclab run --resume DIR takes config, cases and options from the folder."});
  }
  RecordedRun run;
  if (of_folder) {
    reading_records(command, [&] {
      run = read_recorded_run(given, wanted.settings);
      take_recorded_options(given, *values, wanted.backend);
      return kOk;
    });
  } else {
    wanted.config = given;
    run.experiments = load_experiments(given, wanted.settings);
    run.several = !run.experiments.front().target_name.empty();
    if (!wanted.filter.empty()) {
      for (Experiment& experiment : run.experiments) filter_cases(experiment, wanted.filter);
    }
  }
  for (const Experiment& experiment : run.experiments) require_few_lines(experiment);
  if (values->count("dry-run") > 0) return dry_run(run.experiments, run.several, wanted);
  require_files(run.experiments);  // checks all targets now, because the last one may start hours later
  const fs::path folder = of_folder     ? fs::path(given)
                          : out.empty() ? default_folder(run.experiments.front().name, wanted.resume)
                                        : fs::path(out);
  catch_interrupts();
  Progress progress(values->count("quiet") > 0);
  json summaries = json::object();
  int status = kOk;
  if (run.several) {
    const json header =
        of_folder ? read_json_file(folder / "targets.json") : targets_header(run.experiments, wanted.filter);
    status = run_targets(std::move(run.experiments), folder, header, wanted, progress, summaries);
  } else {
    status = run_one(std::move(run.experiments.front()), folder, wanted.resume, wanted, progress, summaries);
  }
  if (wanted.as_json) fmt::print("{}\n", (run.several ? summaries : summaries.front()).dump(1));
  return status;
}

}  // namespace

const Command kRunCommand = {
    "run", "CONFIG [options], or: speclab run --resume DIR",
    "Runs an experiment: every case on every prompt, compared with its reference and with theory.",
    "speclab run configs/quickstart.json --set prompts.limit=2 --filter gamma=4", run_run};

}  // namespace speclab
