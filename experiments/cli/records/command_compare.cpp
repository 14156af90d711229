#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/standard_streams.h"
#include "core/measure/environment.h"
#include "core/measure/run_result.h"
#include "experiments/analysis/compare/compare.h"
#include "experiments/analysis/compare/compare_json.h"
#include "experiments/analysis/compare/compare_text.h"
#include "experiments/analysis/compare/suspects.h"
#include "experiments/cli/command.h"
#include "experiments/run/dry_run.h"
#include "experiments/run/resume.h"
#include "experiments/run/runner.h"

namespace speclab {
namespace po = boost::program_options;
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

/// The options of the command line.
struct CompareWords {
  std::string base, fresh, gates, markdown, rerun;
  std::vector<std::string> aa;
  CompareOptions options;
  bool as_json = false, quiet = false;
};

/// The backend and its options as the run in `folder` had them.
BackendChoice recorded_backend(const fs::path& folder) {
  BackendChoice choice;
  po::options_description options;
  add_backend_options(options, choice);
  po::variables_map values;
  po::store(po::command_line_parser(std::vector<std::string>()).options(options).run(), values);
  po::notify(values);
  take_recorded_options(folder, values, choice);
  return choice;
}

/// Measures these cases of NEW again, in the folder of --rerun. Finished lines in that folder are kept.
RunOutcome measure_again(const CompareWords& words, const json& environment,
                         const std::vector<std::string>& ids, Progress& progress) {
  if (environment.value("binary_sha256", "") != binary_sha256()) {
    throw Error({.what = "speclab compare --rerun",
                 .got = fmt::format("{}, which another binary measured", words.fresh),
                 .expected = "a run that this binary measured",
                 .advice = "Call the speclab binary that measured NEW."});
  }
  Experiment experiment = experiment_of_cases(words.fresh, ids);
  require_files({&experiment, 1});
  catch_interrupts();
  return run_experiment({.experiment = std::move(experiment),
                         .backend = recorded_backend(words.fresh),
                         .out = words.rerun,
                         .resume = path_exists(fs::path(words.rerun) / "config.json"),
                         .costs_of = environment.contains("step_costs") ? fs::path(words.fresh) : fs::path(),
                         .command_line = command_line(),
                         .interrupted = interrupted},
                        progress);
}

/// A command line that compares the same folders with --rerun. It leaves out the other options.
std::string rerun_command(const CompareWords& words) {
  std::string command = fmt::format("speclab compare {} {}", shell_word(words.base), shell_word(words.fresh));
  for (const std::string& folder : words.aa) command += " --aa " + shell_word(folder);
  return command + " --rerun DIR";
}

/// Loads and compares the runs. With --rerun it measures the suspects again. Absent when this measurement was
/// interrupted.
std::optional<Comparison> compare_folders(const CompareWords& words) {
  const ComparedRun base = load_compared_run(words.base), fresh = load_compared_run(words.fresh);
  std::vector<ComparedRun> aa_runs;
  for (const std::string& folder : words.aa) aa_runs.push_back(load_compared_run(folder));
  Comparison comparison = compare_runs(base, fresh, words.options, aa_runs);
  const std::vector<std::string> suspects = suspects_of(comparison);
  if (suspects.empty()) return comparison;
  if (words.rerun.empty()) {
    print_status("Suspects: {}. Measure them again: {}\n", fmt::join(suspects, ", "), rerun_command(words));
    return comparison;
  }
  Progress progress(words.quiet);
  const RunOutcome outcome = measure_again(words, fresh.run.environment, suspects, progress);
  if (outcome.interrupted) {
    progress.warn("interrupted; finished lines are kept. The same command goes on.");
    return std::nullopt;
  }
  CompareOptions options = words.options;
  options.allow_missing = true;                              // the other cases were not measured again
  if (!aa_runs.empty()) options.floors = comparison.floors;  // the A/A runs may lack these cases
  settle_suspects(comparison, compare_runs(base, load_compared_run(words.rerun), options));
  return comparison;
}

std::optional<CompareWords> read_compare_words(const Command& command,
                                               const std::vector<std::string>& arguments) {
  CompareWords words;
  po::options_description options;
  options.add_options()("json", "print JSON")(
      "gate", po::value(&words.gates),
      "compare counts exactly and ignore times: any of tau, alpha, rows, calls, separated by commas. Works "
      "on committed records without raw lines, and across machines with the same numerics class")(
      "aa", po::value(&words.aa)->composing(),
      "a second run of the same config with the binary of BASE or of NEW, on a quiet machine. What differs "
      "from the first run is noise. Without --aa, the noise comes from the repeats. May be given several "
      "times")(
      "rerun", po::value(&words.rerun),
      "measure the suspects (cases that are or seem slower) of NEW again into this folder. The verdict "
      "\"slower\" stays unless the second measurement says \"same\" or \"faster\"")(
      "markdown", po::value(&words.markdown),
      "also write the verdict and the table as Markdown to this file, for a pull request")(
      "allow-changed-text", "texts may differ")("allow-missing",
                                                "cases and texts of BASE may be missing in NEW")(
      "allow-uncompared", "a case with nothing to compare, for example without raw lines, is no failure")(
      "allow-other-workload", "prompts, seeds and options may differ; compare what both runs have")(
      "quiet,q", "show no progress of --rerun");
  const auto values = parse_arguments(command, arguments, options, {"BASE", "NEW"});
  if (!values) return std::nullopt;
  words.base = required(*values, "BASE", command);
  words.fresh = required(*values, "NEW", command);
  if (values->count("gate") > 0) words.options.gates = parse_gates(words.gates);
  if (!words.options.gates.empty() && (!words.rerun.empty() || !words.aa.empty())) {
    throw Error({.what = "speclab compare --gate",
                 .got = words.rerun.empty() ? "--aa" : "--rerun",
                 .expected = "--gate without this option",
                 .advice = "Gates ignore times, so they need no noise and have no suspects."});
  }
  words.options.allow_changed_text = values->count("allow-changed-text") > 0;
  words.options.allow_missing = values->count("allow-missing") > 0;
  words.options.allow_uncompared = values->count("allow-uncompared") > 0;
  words.options.allow_other_workload = values->count("allow-other-workload") > 0;
  words.as_json = values->count("json") > 0;
  words.quiet = values->count("quiet") > 0;
  return words;
}

int run_compare(const Command& command, const std::vector<std::string>& arguments) {
  const std::optional<CompareWords> words = read_compare_words(command, arguments);
  if (!words) return kOk;
  try {
    const std::optional<Comparison> comparison = compare_folders(*words);
    if (!comparison) return kInterrupted;
    const bool gates = !words->options.gates.empty();
    if (!words->markdown.empty())
      write_file(words->markdown, comparison_markdown(*comparison, gates, words->base, words->fresh));
    if (words->as_json) fmt::print("{}\n", comparison_json(*comparison, words->base, words->fresh).dump(1));
    else fmt::print("{}", comparison_text(*comparison, gates));
    return comparison->failed() ? kCheckFailed : kOk;
  } catch (const json::exception& error) {
    throw Error({.what = fmt::format("{} or {}", words->base, words->fresh),
                 .got = error.what(),
                 .expected = "the record of a run",
                 .advice = "See results/SCHEMA.md."});
  }
}

}  // namespace

const Command kCompareCommand = {
    "compare", "BASE NEW [options]",
    "Compares texts and times of two runs, and divides the change of each speedup into reference, "
    "acceptance, "
    "draft, verification and overhead. Exit code 1: a case is slower, failed, changed, missing, not compared "
    "or no longer equal to its reference, or a gate differs; 2: the runs differ in machine, models or "
    "workload.",
    "speclab compare results/baselines/epyc-avx512-2cores/quickstart "
    "results/runs/quickstart-20260101-120000 --gate "
    "tau,alpha,rows,calls",
    run_compare};

}  // namespace speclab
