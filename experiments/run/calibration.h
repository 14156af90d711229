#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/measure/machine_probes.h"
#include "experiments/run/decoder.h"
#include "experiments/config/experiment.h"
#include "experiments/run/forward_times.h"
#include "experiments/run/model_set.h"
#include "experiments/run/overlap/overlap_timer.h"
#include "experiments/run/run_plan.h"

namespace speclab {

/// Measures the costs that predictions need. These measurements are not lines of the run, so the prediction
/// for a case never uses the times of that case's lines. The calibration measures in many short rounds
/// between the lines, not in one long round before them. The reason is that other processes change the speed
/// of the machine from second to second. The rounds must meet the same speeds as the lines.
///
/// A round times forwards after a number of cached tokens: the mean of the run, or
/// CalibrationOptions::context. It times the target over n rows (planned_forwards) and each draft model over
/// 1, 2, 4, ... rows, up to CalibrationOptions::draft_rows. For a case that drafts ahead
/// (StrategyInfo::drafts_ahead) it also times forwards of both models while both work (OverlapTimer). Over
/// all rounds together, each case also decodes a few short texts that are not lines. These texts show what a
/// step costs besides the target's forward. The rounds are written to calibration.jsonl (results/SCHEMA.md).
/// The function calibration_costs computes one table from them.
class Calibration {
 public:
  /// Takes the ids of an autoregressive case and of a prompt, and a seed. Returns the finished line, or null.
  using Texts = std::function<const LineRecord*(const std::string&, const std::string&, std::uint64_t)>;

  /// `lines`: number of lines of the shard. Reads the rounds that an interrupted run of this shard left in
  /// `folder`; each shard measures its own rounds. All arguments must outlive this object.
  Calibration(const Experiment& experiment, const ModelSet& models, Decoder& decoder, const Shard& shard,
              std::size_t lines, const std::filesystem::path& folder, Texts texts);
  /// Returns true if a round is due when `done` lines are finished. The first round is due before all lines,
  /// the last one after all lines. A single round is due before all lines.
  bool due(std::size_t done) const;
  int rounds() const { return done_; }  ///< rounds measured so far, also by an interrupted run
  /// Measures the next round. `prompt` is the prompt of the next line. Drops a round during which
  /// `interrupted` became true.
  void measure(const PromptSpec& prompt, const std::function<bool()>& interrupted);
  /// Appends one probe of the machine's speed to `probes`. Call it before and after each line. Does nothing
  /// when probe_every is 0 or the calibration is disabled, and on a device, because the host must not delay
  /// the device's steps.
  void probe(std::vector<ProbeTimes>& probes);
  /// Returns a function that must be called after each step of a line. It calls probe() after every
  /// probe_every-th step. Empty when probe() does nothing.
  std::function<void(const StepRecord&)> probe_steps(std::vector<ProbeTimes>& probes);

 private:
  bool runs_probes() const;
  ForwardTimer& timer(const std::string& draft);
  OverlapTimer& overlap_timer(const CaseSpec& spec);
  nlohmann::json steps(const CaseSpec& spec, const PromptSpec& prompt,
                       const std::function<bool()>& interrupted) const;

  const Experiment& experiment_;
  const ModelSet& models_;
  Decoder& decoder_;
  nlohmann::json shard_;  ///< [i, n]
  std::size_t lines_;
  std::filesystem::path file_;
  Texts texts_;
  int rounds_ = 0, done_ = 0;
  int context_ = 0, rows_ = 0;
  std::vector<int> draft_sizes_;                ///< rows of the measured draft forwards, the largest first
  std::map<std::string, ForwardTimer> timers_;  ///< by draft; "": the target
  std::map<std::string, OverlapTimer> overlap_timers_;  ///< by case, of the cases that draft ahead
  std::optional<MachineProbes> probes_;                 ///< made for the first probe
};

/// Whether forwards of n rows are measured, if the largest measured one has `most` rows: all n up to 128,
/// then the multiples of 64 and `most`. Predictions interpolate between them. Forwards of many rows take
/// long, and their time per row hardly changes with n.
constexpr bool is_measured_size(int n, int most) {
  return n <= most && (n <= 128 || n % 64 == 0 || n == most);
}

/// A forward of the target in a round of the calibration.
struct PlannedForward {
  int rows = 0;
  bool timed = false;
};

/// The forwards of round `round` of `rounds`, in order. The first ones are untimed: they bring the machine
/// into the state that forwards meet in the middle of a text. Then come the sizes from `rows` down to 6, each
/// in some of the rounds, then the sizes from 5 down to 1, `turns` times.
std::vector<PlannedForward> planned_forwards(int round, int rounds, int rows, int turns);

/// Spreads `wanted` measurements evenly over `rounds` rounds. Returns true if a measurement is made in round
/// `round`. This is true for exactly `wanted` rounds, or for all rounds if there are no more than `wanted`.
/// `phase` shifts these rounds.
constexpr bool measured_in(int round, int rounds, int wanted, int phase) {
  const long at = (round + phase) % rounds;
  return wanted >= rounds || (at + 1) * wanted / rounds != at * wanted / rounds;
}

}  // namespace speclab
