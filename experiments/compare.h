#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/measure/stats.h"
#include "experiments/run_data.h"

namespace speclab {

/// One case of two runs. `ratio` is time per emitted token, base / new: above 1 = the new one is faster.
struct CaseComparison {
  std::string id;
  std::string verdict;  ///< "faster", "slower", "same", "unclear"; "lost equality", "failed", "only in base",
                        ///< "only in new"
  double ratio = 0;     ///< 0 when there is none
  std::optional<stats::Interval> ci;
  std::size_t prompts = 0;      ///< that both have
  bool output_changed = false;  ///< texts differ between the runs, louder than a changed time
  bool regression = false;      ///< slower, lost equality, or failed
};

struct Comparison {
  std::vector<CaseComparison> cases;  ///< in the order of the base
  double noise = 0;                   ///< band used: the larger floor of both runs, at least 1 %
  bool regression = false;
};

/// Joins on case id; prompts that both have are paired. Throws Error when models, device, numerics or threads
/// differ, or no case is common.
Comparison compare_runs(const RunData& base, const RunData& fresh);

}  // namespace speclab
