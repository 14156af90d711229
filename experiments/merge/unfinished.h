#pragma once

#include <span>
#include <string>
#include <vector>

#include "experiments/merge/shard_folder.h"

namespace speclab {

/// A shard that `speclab run --resume` would go on with.
struct UnfinishedShard {
  int shard = 1;
  const ShardFolder* folder = nullptr;  ///< the folder with its finished part
  std::string text;                     ///< "12 of 48 lines and 3 of 160 calibration rounds are missing"
};

/// The shards in these folders that are not finished, in the order of the folders. A finished shard has all
/// lines, calibration rounds and estimates (teacher.jsonl). A failed line or estimate is not missing. The
/// config alone does not say which estimates a run makes. So an estimate of a text is missing if another text
/// has one of the same kind and case, and if neither the text nor its reference's text failed in repeat 0.
/// With "teacher_forced", all estimates are missing if there is no teacher.jsonl.
std::vector<UnfinishedShard> unfinished_shards(std::span<const ShardFolder> folders, const ShardPlan& plan);

}  // namespace speclab
