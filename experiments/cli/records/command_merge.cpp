#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/standard_streams.h"
#include "core/measure/run_result.h"
#include "experiments/analysis/strategy_theory.h"
#include "experiments/analysis/table.h"
#include "experiments/analysis/table_fit.h"
#include "experiments/cli/command.h"
#include "experiments/merge/merge.h"
#include "experiments/metrics/bound_verdict.h"
#include "experiments/metrics/noise/machine_load.h"
#include "experiments/run/run_folder.h"

namespace speclab {
namespace po = boost::program_options;
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

/// How the merged runs are printed.
struct WantedOutput {
  bool as_json = false;
  std::optional<int> width;  ///< of tables; no value: whole tables
};

/// Writes a merged run into `out` and prints its notes on stderr. Prints the table on stdout; with --json,
/// adds the summary to `summaries` instead. `target` is "" for a run of one target.
int write_merged(const MergedShards& shards, const fs::path& out, const std::string& target,
                 const WantedOutput& wanted, json& summaries) {
  for (const std::string& note : shards.notes()) print_status("{}\n", note);
  shards.write(out, command_line());
  const json summary = read_json_file(out / "summary.json");
  if (wanted.as_json) {
    summaries[target] = summary;
  } else {
    if (!target.empty()) fmt::print("{}\n", target);
    fmt::print("{}{}\n", fitted_summary(summary, wanted.width), notes_text(summary));
    fmt::print("{}{}", published_text(summary), theory_text(summary));
    fmt::print("{}", machine_text(summary["machine"]));
    for (const json& error : summary["errors"])
      fmt::print("error: {}: {}\n", error["case"].get<std::string>(), error["message"].get<std::string>());
    if (!summary["complete"].get<bool>()) fmt::print("This run is not complete.\n");
    fmt::print("Record: {}\n", out.string());
  }
  const std::string wrong = wrong_rules_text(summary);
  if (!wrong.empty()) print_status("exit code 1: {}", wrong);
  return summary["errors"].empty() && wrong.empty() ? kOk : kCheckFailed;
}

/// The contents of targets.json without the name of the config's file.
json targets_of(const fs::path& folder) {
  json header = read_json_file(folder / "targets.json");
  if (!header.is_object() || !header.contains("targets") || !header["targets"].is_array()) {
    throw Error({.what = (folder / "targets.json").string(),
                 .got = "no list \"targets\"",
                 .expected = "the record of a run of several targets",
                 .advice = "The file is damaged; see results/SCHEMA.md."});
  }
  header.erase("file");
  return header;
}

/// Merges the runs of several targets, each into a folder of its own beside targets.json.
int merge_targets(const std::vector<fs::path>& folders, const fs::path& out, const MergeOptions& options,
                  const WantedOutput& wanted, json& summaries) {
  const json header = targets_of(folders.front());
  for (const fs::path& folder : folders) {
    if (targets_of(folder) == header) continue;
    throw Error({.what = (folder / "targets.json").string(),
                 .got = fmt::format("other targets or another config than {} has", folders.front().string()),
                 .expected = "shards of one run",
                 .advice = ""});
  }
  std::vector<std::pair<std::string, MergedShards>> runs;  // all are checked before one is written
  for (const json& entry : header["targets"]) {
    const auto name = entry.get<std::string>();
    std::vector<fs::path> own;
    for (const fs::path& folder : folders) {
      if (path_exists(folder / name / "config.json")) own.push_back(folder / name);
    }
    if (!own.empty()) {
      runs.emplace_back(name, MergedShards(own, options));
    } else if (options.partial) {
      print_status("{}: in none of the folders\n", name);
    } else {
      throw Error({.what = "speclab merge",
                   .got = fmt::format("no folder with a run of the target {}", name),
                   .expected = "the runs of all targets",
                   .advice = "Measure it, or merge what there is with --partial."});
    }
  }
  const TargetsFolder held(out, false, read_json_file(folders.front() / "targets.json"), command_line());
  int status = kOk;
  for (const auto& [name, shards] : runs)
    status = std::max(status, write_merged(shards, out / name, name, wanted, summaries));
  return status;
}

int merge_runs(const Command& command, const std::vector<std::string>& arguments) {
  std::string out;
  MergeOptions merge;
  po::options_description options;
  options.add_options()("out", po::value(&out), "folder of the merged run, a new one")(
      "allow-other-machine",
      "the shards may come from several kinds of CPU; the merged record then says so, and its times are "
      "doubtful")(
      "partial",
      "merge what there is, even if shards are missing or not finished; the merged run is then not "
      "complete")("json", "print the summary as JSON");
  add_wide_option(options);
  const auto values = parse_arguments(command, arguments, options, {"DIR..."});
  if (!values) return kOk;
  const char* const lacking = values->count("DIR") == 0   ? "no DIR"
                              : values->count("out") == 0 ? "no --out"
                                                          : nullptr;
  if (lacking != nullptr) {
    throw Error({.what = "speclab merge",
                 .got = lacking,
                 .expected = fmt::format("speclab merge {}", command.usage),
                 .advice = fmt::format("For example: {}", command.example)});
  }
  merge.other_machine = values->count("allow-other-machine") > 0;
  merge.partial = values->count("partial") > 0;
  const WantedOutput wanted{.as_json = values->count("json") > 0, .width = table_width(*values)};
  std::vector<fs::path> folders;
  for (const std::string& folder : (*values)["DIR"].as<std::vector<std::string>>())
    folders.emplace_back(folder);
  const auto several = std::ranges::count_if(
      folders, [](const fs::path& folder) { return path_exists(folder / "targets.json"); });
  json summaries = json::object();
  int status = kOk;
  if (several == 0) {
    status = write_merged(MergedShards(folders, merge), out, "", wanted, summaries);
  } else if (several == static_cast<std::ptrdiff_t>(folders.size())) {
    status = merge_targets(folders, out, merge, wanted, summaries);
  } else {
    throw Error(
        {.what = "speclab merge",
         .got = fmt::format("{} folders of runs of several targets among {}", several, folders.size()),
         .expected = "shards of one run",
         .advice = "Name the folders that hold targets.json, or a target's subfolder of each of them."});
  }
  if (wanted.as_json) fmt::print("{}\n", (several > 0 ? summaries : summaries.front()).dump(1));
  return status;
}

int run_merge(const Command& command, const std::vector<std::string>& arguments) {
  return reading_records(command, [&] { return merge_runs(command, arguments); });
}

}  // namespace

const Command kMergeCommand = {
    "merge", "DIR... --out DIR [options]",
    "Joins the shards of a run (speclab run --shard i/n), each measured into a folder of its own, into one "
    "run. "
    "Refuses shards of different configs, binaries, models or machines, and shards that are missing, not "
    "finished or there twice. Changes nothing in the folders of the shards. Exit code 1: lines or estimates "
    "failed, lines differ from their reference, or a verifier is wrong.",
    "speclab merge results/runs/shard-1 results/runs/shard-2 --out results/runs/merged", run_merge};

}  // namespace speclab
