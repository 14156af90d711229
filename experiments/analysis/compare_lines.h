#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/measure/stats.h"
#include "experiments/analysis/compare.h"
#include "experiments/metrics/run_data.h"
#include "experiments/analysis/workload.h"

/// The raw lines of a case in two runs, for compare_runs.
namespace speclab {

/// The lines of one case with the same prompts and seeds in both runs.
struct CommonLines {
  std::shared_ptr<const CaseData> base, fresh;  ///< never null; without prompts when nothing is common
  std::size_t missing = 0;                      ///< texts that only the base has
  std::string why_none;                         ///< why nothing is common
};
/// Of the texts that both runs planned.
CommonLines common_lines(const CaseData& base, const CaseData& fresh, const CommonWork& work);

/// Counts equal and changed texts, by the first repeat.
TextComparison compare_line_texts(const CommonLines& lines);

/// Noise floor of the decode times of a run; absent without repeats.
std::optional<double> noise_of(const RunData& run);

/// False for a committed record.
bool has_lines(const RunData& run);

}  // namespace speclab
