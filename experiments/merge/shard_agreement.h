#pragma once

#include <span>
#include <string>
#include <vector>

#include "experiments/merge/shard_folder.h"

namespace speclab {

/// Throws Error unless all folders hold shards of one run, as far as their records know it:
///   - the same config, without the name of its file, and the same number of shards
///   - the same commit, binary and compiler
///   - the same models, by SHA-256
///   - the same backend, device, numerics class, threads and settings of the device
///   - the same kind of machine: CPU model, instruction sets, number of cores and caches; driver, memory,
///     power limit and ECC of the GPU
///   - the same table of costs ("step_costs"), because cases with "budget": "auto" or the schedule `bandit`
///     choose the length of their drafts by it
/// The Error names each field that differs, its values, and the folders with each value. A field that a
/// record lacks is not compared. `other_machine`: the fields of the CPU may differ; the result then has a
/// text for each CPU field that differs.
std::vector<std::string> require_one_run(std::span<const ShardFolder> folders, bool other_machine);

}  // namespace speclab
