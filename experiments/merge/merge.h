#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiments/merge/shard_folder.h"
#include "experiments/merge/shard_plan.h"

namespace speclab {

/// What a merge accepts besides finished shards from machines of one kind.
struct MergeOptions {
  bool other_machine = false;  ///< shards from several kinds of CPU
  bool partial = false;        ///< shards that are not finished or not there
};

/// The shards of a run (`speclab run --shard i/n`) that were measured into several folders, for example on
/// several machines. The constructor reads and checks them, and write() joins them into a new run folder. The
/// folders of the shards are only read.
///
/// The merged record equals the record of a run in one piece, except for times, calibration measurements and
/// environment.json:
///   config.json        byte for byte
///   cases/*.jsonl      the lines of the shards byte for byte, in the order of the whole run
///   teacher.jsonl      in the order of prompts and seeds
///   bounds.jsonl       in the order of the lines of repeat 0; bounds without such a line come last
///   calibration.jsonl  the rounds of the first shard, then those of the second, and so on
///   environment.json   the fields of the first shard, and "shards": the number of each shard, its folder and
///                      the fields in which it differs from the first. With MergeOptions::other_machine,
///                      "other_machines" says which fields of the CPU differ; the summary then calls the
///                      times doubtful
///   summary.json       computed from the merged record
/// A merged record that lacks something (MergeOptions::partial) keeps "shard" in environment.json, so that it
/// can be merged again.
class MergedShards {
 public:
  /// Throws Error unless all folders hold shards of one run (require_one_run), each shard is in exactly one
  /// of them, and each is finished: it has all its lines, calibration rounds and estimates on finished texts.
  /// Also throws the Errors of ShardPlan (cases with memory) and of read_shard_lines() (damaged lines, lines
  /// that occur twice, lines that no shard has).
  MergedShards(const std::vector<std::filesystem::path>& folders, const MergeOptions& options);

  MergedShards(const MergedShards&) = delete;  // by_shard_ points into folders_
  MergedShards(MergedShards&&) = default;

  /// Notes for people: lines that were not written completely and were dropped and, with
  /// MergeOptions::partial, what is missing.
  const std::vector<std::string>& notes() const { return notes_; }
  /// Writes the merged run. `command_line` goes into the lock of the folder. Throws the Errors of RunFolder,
  /// for example if `out` holds a run already.
  void write(const std::filesystem::path& out, const std::vector<std::string>& command_line) const;

 private:
  nlohmann::json environment() const;

  std::vector<ShardFolder> folders_;
  std::optional<ShardPlan> plan_;  ///< set by the constructor
  std::vector<std::string> other_machines_, notes_;
  std::map<int, const ShardFolder*> by_shard_;  ///< the folder of each shard
  bool whole_ = true;                           ///< nothing is missing
};

}  // namespace speclab
