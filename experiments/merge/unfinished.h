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
/// lines, calibration rounds and estimates (teacher.jsonl). An estimate is missing if other texts have an
/// estimate of the same kind and case, and the text itself and that of its reference are finished. The config
/// alone does not say which estimates a run makes. A failed line or estimate is not missing.
std::vector<UnfinishedShard> unfinished_shards(std::span<const ShardFolder> folders, const ShardPlan& plan);

}  // namespace speclab
