#include "experiments/analysis/compare/compared_run.h"

#include "experiments/metrics/summary.h"

namespace speclab {

ComparedRun load_compared_run(const std::filesystem::path& folder) {
  return {.run = load_run(folder), .summary = read_summary(folder).summary, .folder = folder.string()};
}

}  // namespace speclab
