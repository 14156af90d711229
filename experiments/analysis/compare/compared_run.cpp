#include "experiments/analysis/compare/compared_run.h"

#include "experiments/metrics/summary.h"

namespace speclab {

ComparedRun load_compared_run(const std::filesystem::path& folder) {
  return {load_run(folder), read_summary(folder).summary};
}

}  // namespace speclab
