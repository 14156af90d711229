#include "experiments/analysis/compare/noise_floors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "experiments/analysis/compare/compare_lines.h"
#include "experiments/analysis/compare/speedup_change.h"
#include "experiments/analysis/compare/workload.h"
#include "experiments/metrics/noise/machine_load.h"
#include "experiments/metrics/noise/ratio_noise.h"

namespace speclab {
namespace {

std::optional<double> larger_floor(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return std::nullopt;
  return std::max(*a, *b);
}

std::string binary_of(const RunData& run) { return run.environment.value("binary_sha256", ""); }

[[noreturn]] void refuse(const ComparedRun& aa, std::string got, std::string expected, std::string advice) {
  throw Error({.what = aa_name(aa),
               .got = std::move(got),
               .expected = std::move(expected),
               .advice = std::move(advice)});
}

/// The times of decoding and of prefill of each line, by case, prompt, seed and repeat.
using TimesOfLines =
    std::map<std::tuple<std::string, std::string, std::uint64_t, int>, std::pair<std::int64_t, std::int64_t>>;

TimesOfLines times_of_lines(const RunData& run) {
  TimesOfLines times;
  for (const auto& data : run.cases) {
    for (const auto& prompt : data->lines) {
      for (const std::vector<LineRecord>& seed : *prompt) {
        for (const LineRecord& line : seed)
          times[{data->id(), line.prompt, line.seed, line.repeat}] = {line.decode_ns(), line.prefill_ns()};
      }
    }
  }
  return times;
}

/// True if the runs are one measurement: they have lines in common, and each of these took the same time to
/// the nanosecond.
bool same_measurement(const RunData& a, const RunData& b) {
  const TimesOfLines in_a = times_of_lines(a), in_b = times_of_lines(b);
  bool any = false;
  for (const auto& [line, times] : in_a) {
    const auto found = in_b.find(line);
    if (found == in_b.end()) continue;
    if (found->second != times) return false;
    any = true;
  }
  return any;
}

void require_second_run(const ComparedRun& aa, const ComparedRun& base, const ComparedRun& fresh) {
  for (const auto& [name, run] : {std::pair("BASE", &base), std::pair("NEW", &fresh)}) {
    if (!same_measurement(aa.run, run->run)) continue;
    refuse(aa, fmt::format("the lines of {} itself", name), "a second run, measured anew",
           "Run the same config again with the same binary, into another folder.");
  }
  if (machine_of(aa.summary, aa.run.environment, drift_of(aa.run)).at("busy").get<bool>())
    refuse(aa, "a run on a busy machine", "a run on a quiet machine",
           "Its noise would hide regressions. Measure it again when nothing else runs.");
}

/// BASE or NEW: the run that was made with the same binary and workload as the A/A run.
const ComparedRun& partner_of(const ComparedRun& aa, const ComparedRun& base, const ComparedRun& fresh) {
  const std::string binary = binary_of(aa.run);
  if (binary.empty())
    refuse(aa, "a record that does not name its binary", "binary_sha256 in environment.json",
           "Run the same config again with the same binary.");
  std::string differences;  // from the first run with this binary
  for (const ComparedRun* run : {&base, &fresh}) {
    if (binary_of(run->run) != binary) continue;
    const std::vector<std::string> found = workload_differences(run->run.config, aa.run.config);
    if (found.empty()) return *run;
    if (differences.empty()) differences = shown_differences(found);
  }
  if (differences.empty())
    refuse(aa, "a run that was made with another binary than BASE and NEW",
           "a second run with the binary of BASE or of NEW",
           "Run the same config again with the same binary.");
  refuse(aa, "another workload than the run with the same binary, " + differences,
         "the same prompts, seeds and options", "Run the same config again.");
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
  refuse(aa, "a run that has no text in common with the run of the same binary",
         "a second run of the same config, with its raw lines",
         "`scripts/baseline.py expand` unpacks the raw lines of a committed record.");
}

/// True if both runs have a case with its reference.
bool have_speedups(const RunData& base, const RunData& fresh) {
  return std::any_of(base.cases.begin(), base.cases.end(), [&](const auto& one) {
    return one->reference && std::any_of(fresh.cases.begin(), fresh.cases.end(), [&](const auto& other) {
             return other->reference && other->id() == one->id();
           });
  });
}

}  // namespace

std::string aa_name(const ComparedRun& aa) { return aa.folder.empty() ? "--aa" : "--aa " + aa.folder; }

NoiseFloors floors_of_repeats(const RunData& base, const RunData& fresh) {
  return {.times = larger_floor(noise_of(base), noise_of(fresh)),
          .speedups = larger_floor(ratio_noise(base.cases), ratio_noise(fresh.cases))};
}

NoiseFloors floors_of_aa_runs(const ComparedRun& base, const ComparedRun& fresh,
                              std::span<const ComparedRun> aa_runs) {
  LargestChanges largest;
  for (const ComparedRun& aa : aa_runs) {
    require_second_run(aa, base, fresh);
    add_aa_run(aa, partner_of(aa, base, fresh), largest);
  }
  if (!largest.speedups && have_speedups(base.run, fresh.run)) {
    throw Error({.what = "--aa",
                 .got = "no A/A run that has a case with its autoregressive reference",
                 .expected = "at least one such case, for the noise of speedups",
                 .advice = "Run the same config again without --filter."});
  }
  NoiseFloors floors;
  floors.aa_runs = aa_runs.size();
  if (largest.times) floors.times = std::expm1(*largest.times);
  if (largest.speedups) floors.speedups = std::expm1(*largest.speedups);
  return floors;
}

}  // namespace speclab
