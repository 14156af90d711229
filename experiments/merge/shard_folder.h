#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "experiments/merge/shard_plan.h"

namespace speclab {

/// A finished line of a case. Its text is kept as it stands in the file, so that a copy equals it byte for
/// byte.
struct ShardLine {
  LineKey key;
  int order = 0;        ///< number of the line in the order of the whole run
  bool failed = false;  ///< the line has an "error" instead of numbers
  std::string text;     ///< without the newline
};

/// A finished line of teacher.jsonl or bounds.jsonl.
struct ShardText {
  std::string kind;  ///< teacher.jsonl: "alpha" or "nll", also for an estimate that failed; bounds.jsonl: ""
  std::string case_id, prompt;
  std::uint64_t seed = 0;
  std::string text;  ///< without the newline
};

/// Kind, case, prompt and seed of a line of teacher.jsonl.
using EstimateKey = std::tuple<std::string, std::string, std::string, std::uint64_t>;

/// The record of one folder that `speclab run --shard i/n` wrote. Usually it holds one shard. It holds more
/// if shards were run one after the other into the same folder.
struct ShardFolder {
  std::filesystem::path path;
  nlohmann::json config, environment;
  int shards = 1;       ///< the n of --shard i/n
  std::set<int> holds;  ///< shards with a line or a round here, and the shard in environment.json
  std::map<std::string, std::vector<ShardLine>> lines;  ///< by case, in the order of the file
  std::map<std::pair<int, int>, std::string> rounds;    ///< calibration rounds by (shard, round)
  std::vector<ShardText> teacher, bounds;               ///< in the order of the files
  bool has_teacher = false;        ///< there is a teacher.jsonl, which a run makes after its last line
  std::vector<std::string> notes;  ///< what was left out: lines that were not written completely
};

/// Reads config.json and environment.json of a folder and finds out how many shards its run has: from "shard"
/// in environment.json, else from its calibration rounds, else 1. Throws Error if the folder holds no run, or
/// if environment.json and the rounds disagree.
ShardFolder open_shard_folder(const std::filesystem::path& path);

/// Reads the lines of an opened folder. A last line without a newline is dropped, with a note. Throws Error
/// for a damaged line (line_from_json), for a line that occurs twice, for a line that no shard of the run
/// has, and for a file in cases/ that belongs to no case. Two kinds of lines may occur twice: a failed
/// estimate (each attempt adds a line), and the bounds of one case, prompt and seed (a run that was killed
/// leaves two lines; the first is kept).
void read_shard_lines(ShardFolder& folder, const ShardPlan& plan);

}  // namespace speclab
