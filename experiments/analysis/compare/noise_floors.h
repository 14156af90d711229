#pragma once

#include <optional>
#include <span>
#include <string>

#include "experiments/analysis/compare/compared_run.h"

/// Finds how much two measurements of the same thing differ by chance. Differences up to these floors are not
/// called differences.
namespace speclab {

struct NoiseFloors {
  std::optional<double> times;     ///< for times per token; 0.02 means 2 %
  std::optional<double> speedups;  ///< for speedups
  std::size_t aa_runs = 0;         ///< number of A/A runs that the floors come from; 0: from the repeats
};

/// The floors from repeats: stats::noise_floor for times, ratio_noise for speedups, each the larger one of
/// both runs. A floor is absent when one of the runs has no repeats. The repeats of a run lie close together,
/// so these floors do not show how much two runs differ if hours lie between them.
NoiseFloors floors_of_repeats(const RunData& base, const RunData& fresh);

/// The floors from A/A runs. An A/A run is another run with the same binary and config as BASE, or as NEW. It
/// is compared with that run, case by case. The comparison gives a 95 % interval of the change of each case.
/// A floor is the largest distance of an interval's end from no change, over all cases and A/A runs. An A/A
/// run may lack cases. Throws Error
/// - for a run that is BASE or NEW itself, or a copy: all lines that both have took the same time,
/// - for a run on a busy machine, because its noise would hide regressions,
/// - for a run whose record does not name its binary, and for a run with a binary of neither BASE nor NEW,
/// - when prompts, seeds or options differ from those of the run with the same binary,
/// - when a run has no text in common with the run with the same binary,
/// - when BASE and NEW have a speedup and no A/A run has one.
NoiseFloors floors_of_aa_runs(const ComparedRun& base, const ComparedRun& fresh,
                              std::span<const ComparedRun> aa_runs);

/// How an error names an A/A run: "--aa FOLDER".
std::string aa_name(const ComparedRun& aa);

}  // namespace speclab
