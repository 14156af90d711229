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

/// Keeps the promise that a line of a case with memory depends on the record alone: when a line begins, the
/// strategy knows the finished texts of the same pass (repeat and seed) that come before it in the file of
/// prompts, and nothing else. Where it knows something else, because a pass begins, a run goes on or a line
/// has failed, it is made anew and decodes those texts again, untimed and not recorded. That is exact for
/// every strategy, also for those whose memory cannot be read off a text.
class CaseMemory {
 public:
  /// Everything handed over must outlive this.
  CaseMemory(const Experiment& experiment, Decoder& decoder, const RunLines& lines, Progress& progress)
      : experiment_(experiment), decoder_(decoder), lines_(lines), progress_(progress) {}

  /// To be called before each line. False: interrupted. Throws Error when a text that is decoded again is not
  /// that of the record.
  bool prepare(const PlannedLine& next, const std::function<bool()>& interrupted);
  /// To be called when the line that was prepared has been decoded as a whole.
  void finished(const PlannedLine& line);

 private:
  struct State {
    bool valid = false;
    std::pair<int, std::uint64_t> pass;  ///< repeat and seed
    std::vector<int> prompts;            ///< that the strategy has decoded
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
