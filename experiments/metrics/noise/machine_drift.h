#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <vector>

#include "core/measure/run_result.h"
#include "core/theory/explain.h"
#include "core/theory/step_costs.h"

namespace speclab {

/// Returns how slow the machine was in each of these calibration rounds, as a factor. The factor is the time
/// of a forward divided by the mean time of that forward over all rounds. It is averaged over the sizes of
/// forwards that every round measured. A factor above 1 means that the machine was slow. All factors are 1
/// when no size was measured in every round. `of_device`: by the times of the device's clock.
std::vector<double> round_factors(std::span<const nlohmann::json* const> rounds, bool of_device = false);

/// Tells how slow the machine was while a line was measured. On a shared host, a forward can take twice as
/// long in one second as in another. A case whose lines fell into slow seconds looks slow, and no mean over
/// the run shows that. The answer comes from the probes in the line (MachineProbes), else from the
/// calibration rounds next to it. In older records it comes from forwards that were timed between the steps
/// of the line.
///
/// A forward reads memory and computes, and a probe of each kind is timed. If the memory probe takes m times
/// and the arithmetic probe a times its mean over the calibration rounds, the factor is w m + (1 - w) a. The
/// share w of memory, in [0, 1], is one number for the run: the one with the smallest sum of squared
/// differences from round_factors() over the calibration rounds. So no line and no t(n) enter the share.
class MachineDrift {
 public:
  /// `rounds`: the lines of calibration.jsonl. If the run was measured in several shards (parts, see Shard in
  /// experiments/run/run_plan.h), the rounds tell nothing, because a line does not say which shard's rounds
  /// were near it.
  explicit MachineDrift(std::span<const nlohmann::json> rounds);
  /// How much longer the rounds took in the slowest third of the run than in the fastest third: 0.1 means
  /// 10 % longer. Absent with fewer than two rounds in each third.
  std::optional<double> across_run() const;
  /// What the factor of a line comes from: `probes` if the line and the rounds have probes; `lines` if
  /// forwards were timed between the steps of the line; else `rounds`.
  theory::DriftSource source(const LineRecord& line) const;
  /// Returns the factor of a line, by source(). `probes`: see above. `lines`: the time of each forward is
  /// divided by the time that `target` (ns) gives for as many rows, and the factor is the mean of these
  /// ratios. `rounds`: the mean factor of two rounds, the last one before the line and the next one. Absent
  /// when the source is `rounds` and either the rounds tell nothing or the line does not say how many rounds
  /// came before it.
  std::optional<double> during(const LineRecord& line, const theory::RowTimes& target) const;
  /// The share w of memory; absent unless every round has probes.
  std::optional<double> memory_share() const;

 private:
  /// Mean times of the probes, in ns.
  struct MeanProbe {
    double memory = 0, arithmetic = 0;
  };
  void read_probes(std::span<const nlohmann::json* const> rounds);

  std::vector<double> factors_;      ///< [rounds]
  std::optional<MeanProbe> probes_;  ///< over all rounds
  double memory_share_ = 0;
};

}  // namespace speclab
