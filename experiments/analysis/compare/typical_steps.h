#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/token.h"
#include "experiments/metrics/run_data.h"

/// Finds the typical time of every step of a case, for the comparison of two runs.
///
/// If all repeats of a text take the same steps, each step was timed once in each repeat. The typical time of
/// a step is then the median over repeats, taken for each part of the time (PartTimes). With three repeats, a
/// disturbance of the machine during one repeat hardly changes the result.
namespace speclab {

/// The time of a span of decoding in ns, in three parts that add up to the whole.
struct PartTimes {
  double draft = 0;
  double target = 0;    ///< verification: the target's forward
  double overhead = 0;  ///< everything else: acceptance rule, bookkeeping, time between two steps
  double total() const { return draft + target + overhead; }
  PartTimes& operator+=(const PartTimes& other);
};

/// One step of a text with its typical times.
struct TypicalStep {
  std::size_t turn = 0;   ///< index of the turn
  std::size_t begin = 0;  ///< number of tokens that the earlier steps of the turn emitted
  int emitted = 0, rows = 0;
  std::size_t drafted = 0;
  PartTimes times;
};

/// A text (one prompt and seed) with the typical times of its steps.
struct TypicalText {
  std::vector<std::vector<Token>> ids;  ///< [turns], each with the first token, which comes from prefill
  std::vector<TypicalStep> steps;       ///< of all turns, in order
  PartTimes times;                      ///< of the whole text: its steps and the time between them
  double tokens = 0;                    ///< emitted tokens without the first one of each turn
};

using TextKey = std::pair<std::string, std::uint64_t>;  ///< prompt, seed

/// The finished texts of a case. If the repeats of a text differ in their steps, the repeat with the median
/// decode time stands for all of them.
std::map<TextKey, TypicalText> typical_texts(const CaseData& data);

}  // namespace speclab
