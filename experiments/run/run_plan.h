#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/measure/run_result.h"
#include "experiments/config/experiment.h"

namespace speclab {

/// One line to measure. The members `case_index` and `prompt_index` are indices into the experiment.
struct PlannedLine {
  int order = 0;  ///< position in the plan
  int case_index = 0;
  int prompt_index = 0;
  std::uint64_t seed = 0;
  int repeat = 0;
};

/// Part i of n of a run; i counts from 1. The part has every n-th prompt from the i-th on, with all cases, so
/// that each part measures whole comparisons. Together, the parts have all lines of the run.
struct Shard {
  int i = 1, n = 1;
};

/// Returns the lines of a run in the order in which they are measured. A text is a prompt with a seed. A
/// repeat goes through all texts in a seeded random order. For each text all cases follow one another, also
/// in a seeded random order, so that cases are compared under the same load of the machine. A reference takes
/// each place among the cases about equally often, so that no ratio depends on the reference's place. In the
/// first repeat, cases that draft from the reference's text come after the reference.
///
/// If some strategy keeps memory from one text to the next, texts are not shuffled: a repeat goes through the
/// seeds in order, and for each seed through the prompts in the order of their file. The memory is emptied
/// before each seed.
///
/// The result depends on the experiment and the shard alone. Each line's `order` is its position in the plan
/// of the whole run. Throws Error for more shards than prompts, and for shards of an experiment with memory.
std::vector<PlannedLine> plan_lines(const Experiment& experiment, const Shard& shard = {});

/// The key of a line: case, prompt, seed and repeat. It identifies the same line in two runs.
using LineKey = std::tuple<std::string, std::string, std::uint64_t, int>;
inline LineKey key_of(const LineRecord& line) { return {line.case_id, line.prompt, line.seed, line.repeat}; }

}  // namespace speclab
