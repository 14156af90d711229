#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/measure/stats.h"
#include "experiments/analysis/compare/compare.h"
#include "experiments/analysis/compare/speedup_change.h"
#include "experiments/analysis/compare/workload.h"
#include "experiments/metrics/run_data.h"

/// Finds and compares the raw lines that two runs have in common, for compare_runs.
namespace speclab {

/// The lines of one case with the same prompts and seeds in both runs.
struct CommonLines {
  std::shared_ptr<const CaseData> base,
      fresh;                ///< never null; without prompts when there are no common lines
  std::size_t missing = 0;  ///< number of texts that only the base has
  std::string why_none;     ///< why there are no common lines
  /// The autoregressive cases of both runs; both are null when one of the runs has none for this case.
  std::shared_ptr<const CaseData> base_reference, new_reference;
};
/// The common lines of a case. `work`: the texts that both runs planned.
CommonLines common_lines(const CaseData& base, const CaseData& fresh, const CommonWork& work);

/// Compares the texts of the first repeat. Fills in all fields except `promised`.
TextComparison compare_line_texts(const CommonLines& lines);

/// The change of the case between the two runs (speedup_change), over its common lines. The references are
/// left out when they have no text in common with the case.
std::optional<SpeedupChange> change_of_case(const CommonLines& lines);

/// The noise floor of a run's decode times; absent without repeats.
std::optional<double> noise_of(const RunData& run);

/// True when the run folder has raw lines, also if all of them are errors. False for a committed record,
/// whose lines are packed or were not kept.
bool has_lines(const RunData& run);

}  // namespace speclab
