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

/// Repeats outermost; inside a repeat prompts (with seeds) in a seeded order; for each all cases after one
/// another in a seeded order, so that what is compared is measured close together. In the first repeat
/// references go first: their text is what the others are checked against. A pure function of the experiment.
std::vector<PlannedLine> plan_lines(const Experiment& experiment);

/// Keeps every n-th prompt from the i-th on (i from 1), so that n machines share a run: each measures whole
/// comparisons.
void take_shard(Experiment& experiment, int i, int n);

/// What makes a line the same in two runs.
using LineKey = std::tuple<std::string, std::string, std::uint64_t, int>;
inline LineKey key_of(const LineRecord& line) {
  return {line.case_id, line.prompt, line.seed, line.repeat};
}

}  // namespace speclab
