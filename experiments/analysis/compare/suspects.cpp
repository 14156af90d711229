#include "experiments/analysis/compare/suspects.h"

#include <algorithm>
#include <set>

#include "experiments/run/resume.h"

namespace speclab {

std::vector<std::string> suspects_of(const Comparison& comparison) {
  std::vector<std::string> ids;
  for (const CaseComparison& one : comparison.cases) {
    if (one.suspect) ids.push_back(one.id);
  }
  return ids;
}

Experiment experiment_of_cases(const std::filesystem::path& folder, const std::vector<std::string>& ids) {
  Experiment experiment = std::move(read_recorded_run(folder, {}).experiments.front());
  std::set<std::string> keep(ids.begin(), ids.end());
  for (const CaseSpec& spec : experiment.cases) {
    if (keep.contains(spec.id) && !spec.reference.empty()) keep.insert(spec.reference);
  }
  std::erase_if(experiment.cases, [&](const CaseSpec& spec) { return !keep.contains(spec.id); });
  return experiment;
}

void settle_suspects(Comparison& comparison, const Comparison& again) {
  for (CaseComparison& one : comparison.cases) {
    if (!one.suspect) continue;
    const auto found = std::find_if(again.cases.begin(), again.cases.end(),
                                    [&](const CaseComparison& other) { return other.id == one.id; });
    if (found == again.cases.end()) continue;
    one.again = SecondMeasurement{.verdict = found->verdict, .ratio = found->ratio, .ci = found->ci};
    if (one.verdict == "slower" && (found->verdict == "same" || found->verdict == "faster")) {
      one.verdict = "unclear: not slower when measured again";
      std::erase(one.failures, Failure::slower);
    }
    for (const Failure failure : found->failures) {
      const bool known = std::find(one.failures.begin(), one.failures.end(), failure) != one.failures.end();
      if (failure != Failure::slower && !known) one.failures.push_back(failure);
    }
  }
}

}  // namespace speclab
