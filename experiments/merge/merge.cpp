#include "experiments/merge/merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/measure/run_result.h"
#include "experiments/merge/shard_agreement.h"
#include "experiments/merge/shard_folder.h"
#include "experiments/merge/unfinished.h"
#include "experiments/metrics/summary.h"
#include "experiments/run/resume.h"
#include "experiments/run/run_folder.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Finds the folder of each shard. Throws Error if a shard is in two folders.
std::map<int, const ShardFolder*> folders_by_shard(const std::vector<ShardFolder>& folders) {
  std::map<int, const ShardFolder*> by_shard;
  for (const ShardFolder& folder : folders) {
    for (const int shard : folder.holds) {
      const auto [first, is_new] = by_shard.emplace(shard, &folder);
      if (is_new) continue;
      const bool named = folder.shards > 1;
      throw Error(
          {.what = named ? fmt::format("shard {}/{}", shard, folder.shards) : "speclab merge",
           .got = fmt::format("{} of it in {} and in {}", named ? "lines" : "the whole run, with lines",
                              first->second->path.string(), folder.path.string()),
           .expected = "each shard in one folder",
           .advice = named ? "Leave one of the folders out, or remove the lines of this shard from it."
                           : "These folders do not say that they are shards (speclab run --shard i/n)."});
    }
  }
  return by_shard;
}

/// Throws Error for shards that are missing or not finished; with `partial`, adds notes instead.
void require_finished(const std::vector<ShardFolder>& folders, const ShardPlan& plan,
                      const std::map<int, const ShardFolder*>& by_shard, bool partial,
                      std::vector<std::string>& notes) {
  std::vector<std::string> missing;
  for (int shard = 1; shard <= plan.shards(); ++shard) {
    if (!by_shard.contains(shard)) missing.push_back(fmt::format("{}/{}", shard, plan.shards()));
  }
  if (!missing.empty() && !partial) {
    throw Error({.what = "speclab merge",
                 .got = fmt::format("no folder with shard {}", fmt::join(missing, ", ")),
                 .expected = fmt::format("the {} shards of this run", plan.shards()),
                 .advice = "Measure it with speclab run --shard, or merge what there is with --partial."});
  }
  for (const std::string& shard : missing)
    notes.push_back(fmt::format("shard {}: in none of the folders", shard));
  const std::vector<UnfinishedShard> unfinished = unfinished_shards(folders, plan);
  if (unfinished.empty()) return;
  if (!partial) {
    const UnfinishedShard& first = unfinished.front();
    throw Error(
        {.what = fmt::format("shard {}/{} in {}", first.shard, plan.shards(), first.folder->path.string()),
         .got = fmt::format(
             "{}{}", first.text,
             unfinished.size() > 1 ? fmt::format(" ({} shards are not finished)", unfinished.size()) : ""),
         .expected = "a finished shard",
         .advice =
             fmt::format("Go on with it: speclab run --resume {} --shard {}/{}. Or merge what there is with "
                         "--partial.",
                         shell_word(first.folder->path.string()), first.shard, plan.shards())});
  }
  for (const UnfinishedShard& one : unfinished)
    notes.push_back(
        fmt::format("shard {}/{} in {}: {}", one.shard, plan.shards(), one.folder->path.string(), one.text));
}

/// The fields of `environment`, except "shard", that `base` lacks or has with another value.
json other_fields(const json& environment, const json& base) {
  json out = json::object();
  for (const auto& [name, value] : environment.items()) {
    if (name != "shard" && (!base.contains(name) || base[name] != value)) out[name] = value;
  }
  return out;
}

/// Texts with the place of each in the merged file.
using Sorted = std::vector<std::pair<std::size_t, const std::string*>>;

void write_sorted(const fs::path& path, Sorted& texts) {
  std::ranges::stable_sort(texts, {}, &Sorted::value_type::first);
  std::string all;
  for (const auto& [place, text] : texts) all.append(*text).push_back('\n');
  write_file(path, all);
}

void write_lines(const fs::path& out, const std::vector<ShardFolder>& folders, const ShardPlan& plan) {
  for (const std::string& id : plan.cases()) {
    Sorted texts;
    for (const ShardFolder& folder : folders) {
      for (const ShardLine& line : folder.lines.at(id))
        texts.emplace_back(static_cast<std::size_t>(line.order), &line.text);
    }
    if (!texts.empty()) write_sorted(out / "cases" / case_file_name(id), texts);
  }
}

void write_rounds(const fs::path& out, const std::vector<ShardFolder>& folders) {
  std::map<std::pair<int, int>, const std::string*> rounds;
  for (const ShardFolder& folder : folders) {
    for (const auto& [key, text] : folder.rounds) rounds.emplace(key, &text);
  }
  Sorted texts;
  for (const auto& [key, text] : rounds) texts.emplace_back(texts.size(), text);
  if (!texts.empty()) write_sorted(out / "calibration.jsonl", texts);
}

void write_teacher(const fs::path& out, const std::vector<ShardFolder>& folders, const ShardPlan& plan) {
  Sorted texts;
  bool any = false;
  for (const ShardFolder& folder : folders) {
    any = any || folder.has_teacher;
    for (const ShardText& line : folder.teacher)
      texts.emplace_back(plan.place_of(line.prompt, line.seed), &line.text);
  }
  if (any) write_sorted(out / "teacher.jsonl", texts);
}

/// Writes the bounds in the order of the lines of repeat 0 that they belong to, as a run in one piece does.
/// Bounds without a line, because the run was killed before it wrote the line, come last.
void write_bounds(const fs::path& out, const std::vector<ShardFolder>& folders) {
  Sorted texts;
  for (const ShardFolder& folder : folders) {
    std::map<std::tuple<std::string, std::string, std::uint64_t>, int> orders;
    for (const auto& [id, lines] : folder.lines) {
      for (const ShardLine& line : lines) {
        const auto& [case_id, prompt, seed, repeat] = line.key;
        if (repeat == 0) orders.emplace(std::tuple(case_id, prompt, seed), line.order);
      }
    }
    for (const ShardText& line : folder.bounds) {
      const auto found = orders.find({line.case_id, line.prompt, line.seed});
      texts.emplace_back(found == orders.end() ? SIZE_MAX : static_cast<std::size_t>(found->second),
                         &line.text);
    }
  }
  if (!texts.empty()) write_sorted(out / "bounds.jsonl", texts);
}

}  // namespace

MergedShards::MergedShards(const std::vector<fs::path>& paths, const MergeOptions& options) {
  for (const fs::path& path : paths) folders_.push_back(open_shard_folder(path));
  other_machines_ = require_one_run(folders_, options.other_machine);
  const ShardFolder& first = folders_.front();
  plan_.emplace(first.config, first.shards, (first.path / "config.json").string());
  for (ShardFolder& folder : folders_) {
    read_shard_lines(folder, *plan_);
    notes_.insert(notes_.end(), folder.notes.begin(), folder.notes.end());
  }
  by_shard_ = folders_by_shard(folders_);
  const std::size_t dropped = notes_.size();
  require_finished(folders_, *plan_, by_shard_, options.partial, notes_);
  whole_ = notes_.size() == dropped;
}

json MergedShards::environment() const {
  SPECLAB_CHECK(!by_shard_.empty(), "no shards");
  const auto& [first_shard, first] = *by_shard_.begin();
  json out = first->environment;
  out.erase("shard");
  out["shards"] = json::array();
  for (const auto& [shard, folder] : by_shard_) {
    out["shards"].push_back({{"shard", {shard, plan_->shards()}},
                             {"folder", folder->path.string()},
                             {"environment", other_fields(folder->environment, first->environment)}});
  }
  if (!other_machines_.empty()) out["other_machines"] = other_machines_;
  if (!whole_ && plan_->shards() > 1) out["shard"] = {first_shard, plan_->shards()};
  return out;
}

void MergedShards::write(const fs::path& out, const std::vector<std::string>& command_line) const {
  RunFolder merged(out, false, folders_.front().config, command_line);
  make_folders(out / "cases");
  write_lines(out, folders_, *plan_);
  write_rounds(out, folders_);
  write_teacher(out, folders_, *plan_);
  write_bounds(out, folders_);
  merged.begin(environment());  // writes config.json, which makes the folder a run
  write_file(out / "summary.json", summary_text(summarise_run(out)));
}

}  // namespace speclab
