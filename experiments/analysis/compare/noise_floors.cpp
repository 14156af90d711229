#include "experiments/analysis/compare/noise_floors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "experiments/analysis/compare/compare_lines.h"
#include "experiments/analysis/compare/speedup_change.h"
#include "experiments/analysis/compare/workload.h"
#include "experiments/metrics/ratio_noise.h"

namespace speclab {
namespace {

std::optional<double> larger_floor(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return std::nullopt;
  return std::max(*a, *b);
}

std::string binary_of(const RunData& run) { return run.environment.value("binary_sha256", ""); }

/// BASE or NEW: the run that was made with the same binary as the A/A run.
const ComparedRun& partner_of(const ComparedRun& aa, const ComparedRun& base, const ComparedRun& fresh) {
  if (binary_of(aa.run) == binary_of(base.run)) return base;
  if (binary_of(aa.run) == binary_of(fresh.run)) return fresh;
  throw Error({.what = "--aa",
               .got = "a run that was made with another binary than BASE and NEW",
               .expected = "a second run with the binary of BASE or of NEW",
               .advice = "Run the same config again with the same binary."});
}

/// The largest changes of one A/A run, as logarithms.
struct LargestChanges {
  std::optional<double> times, speedups;
};

void raise_to(std::optional<double>& largest, const stats::Value& ratio) {
  const stats::Interval ends = ratio.ci.value_or(stats::Interval{ratio.value, ratio.value});
  for (const double end : {ends.lo, ends.hi})
    largest = std::max(largest.value_or(0), std::abs(std::log(end)));
}

void add_aa_run(const ComparedRun& aa, const ComparedRun& partner, LargestChanges& largest) {
  const CommonWork work = common_work(partner.run.config, aa.run.config);
  bool any = false;
  for (const auto& first : partner.run.cases) {
    for (const auto& second : aa.run.cases) {
      if (first->id() != second->id() || first->unequal() || second->unequal()) continue;
      const auto change = change_of_case(common_lines(*first, *second, work));
      if (!change) continue;
      any = true;
      raise_to(largest.times, change->own);
      if (change->has_reference) raise_to(largest.speedups, change->whole);
    }
  }
  if (any) return;
  throw Error({.what = "--aa",
               .got = "a run that has no text in common with the run of the same binary",
               .expected = "a second run of the same config, with its raw lines",
               .advice = "`scripts/baseline.py expand` unpacks the raw lines of a committed record."});
}

}  // namespace

NoiseFloors floors_of_repeats(const RunData& base, const RunData& fresh) {
  return {.times = larger_floor(noise_of(base), noise_of(fresh)),
          .speedups = larger_floor(ratio_noise(base.cases), ratio_noise(fresh.cases))};
}

NoiseFloors floors_of_aa_runs(const ComparedRun& base, const ComparedRun& fresh,
                              std::span<const ComparedRun> aa_runs) {
  LargestChanges largest;
  for (const ComparedRun& aa : aa_runs) add_aa_run(aa, partner_of(aa, base, fresh), largest);
  NoiseFloors floors;
  floors.aa_runs = aa_runs.size();
  if (largest.times) floors.times = std::expm1(*largest.times);
  if (largest.speedups) floors.speedups = std::expm1(*largest.speedups);
  return floors;
}

}  // namespace speclab
