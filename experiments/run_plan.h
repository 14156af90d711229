#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/measure/run_result.h"
#include "experiments/experiment.h"

namespace speclab {

/// One line to measure: indices into the experiment.
struct PlannedLine {
  int order = 0;  ///< position in the plan
  int case_index = 0;
  int prompt_index = 0;
  std::uint64_t seed = 0;
  int repeat = 0;
};

/// Part i of n (i from 1) of a run: every n-th prompt from the i-th on, so that each part measures whole
/// comparisons. The parts' lines together are those of the whole run.
struct Shard {
  int i = 1, n = 1;
};

/// Repeats outermost; inside a repeat the texts (a prompt with a seed) in a seeded order; for each text all
/// cases after one another in a seeded order, so that what is compared is measured close together. A
/// reference takes each place among the cases about equally often, so that no ratio depends on who begins.
/// Cases that draft from the reference's text come behind it in the first repeat. Where some case carries
/// memory, texts are not shuffled: a repeat goes through the seeds in their order, and each seed through the
/// prompts in the order of their file. Such a pass is what the memory of a case lives for. A pure function of
/// the experiment and the shard; `order` is the position in the plan of the whole run. Throws Error for more
/// shards than prompts, and for shards of an experiment with memory.
std::vector<PlannedLine> plan_lines(const Experiment& experiment, const Shard& shard = {});

/// What makes a line the same in two runs.
using LineKey = std::tuple<std::string, std::string, std::uint64_t, int>;
inline LineKey key_of(const LineRecord& line) {
  return {line.case_id, line.prompt, line.seed, line.repeat};
}

}  // namespace speclab
