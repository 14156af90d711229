#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "experiments/run/decoder.h"
#include "experiments/config/experiment.h"
#include "experiments/run/progress.h"
#include "experiments/run/run_lines.h"
#include "experiments/run/run_plan.h"

namespace speclab {

/// Some strategies carry memory from text to text. This class gives such a strategy the right memory before
/// each line. The line then depends only on lines that are already in the record, not on whether the run was
/// interrupted or a line failed. A pass is one repeat with one seed. When a line begins, the strategy must
/// know the finished texts of the same pass whose prompts come earlier in the file of prompts, and nothing
/// else. The memory is wrong when a pass begins, a run is resumed or a line has failed. Then the strategy is
/// created anew and decodes those texts again. This decoding is neither timed nor recorded. The method is
/// exact for every strategy, also for one whose memory depends on more than the emitted tokens.
class CaseMemory {
 public:
  /// All arguments must outlive this object.
  CaseMemory(const Experiment& experiment, Decoder& decoder, const RunLines& lines, Progress& progress)
      : experiment_(experiment), decoder_(decoder), lines_(lines), progress_(progress) {}

  /// Call this before each line. Returns false when interrupted. Throws Error when decoding a text again
  /// gives another text or other drafts than the record has.
  bool prepare(const PlannedLine& next, const std::function<bool()>& interrupted);
  /// Call this when the prepared line has been decoded to its end.
  void finished(const PlannedLine& line);

 private:
  struct State {
    bool valid = false;
    std::pair<int, std::uint64_t> pass;  ///< repeat and seed
    std::vector<int> prompts;            ///< indices of the prompts that the strategy has decoded
  };
  bool decode_again(const CaseSpec& spec, const PlannedLine& next, int prompt,
                    const std::function<bool()>& interrupted);

  const Experiment& experiment_;
  Decoder& decoder_;
  const RunLines& lines_;
  Progress& progress_;
  std::map<int, State> states_;  ///< by case
};

}  // namespace speclab
