#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/run/decoder.h"
#include "experiments/config/experiment.h"
#include "experiments/run/forward_times.h"
#include "experiments/run/model_set.h"
#include "experiments/run/run_plan.h"

namespace speclab {

/// Measures the costs that predictions need, apart from the lines of the run: a prediction never uses the
/// times of the case that it predicts. It measures in many short rounds between the lines, not in one long
/// round before them. Other processes change the speed of the machine from second to second, and predictions
/// and lines must see the same machine.
///
/// A round times forwards at the mean context of the run: the target over n rows (n = 1 .. 5 several times in
/// every round, larger n less often) and each draft model over 1 and 2 rows. Over all rounds, each case also
/// decodes a few short texts outside its lines; they show what a step costs besides the target's forward.
/// Rounds are written to calibration.jsonl (results/SCHEMA.md); calibration_costs makes one table of them.
class Calibration {
 public:
  /// Returns the finished autoregressive line of (case, prompt, seed), or null.
  using Texts = std::function<const LineRecord*(const std::string&, const std::string&, std::uint64_t)>;

  /// `lines`: number of lines of the shard. Reads the rounds that an interrupted run of this shard left in
  /// `folder`; each shard measures its own rounds. All arguments must outlive this object.
  Calibration(const Experiment& experiment, const ModelSet& models, Decoder& decoder, const Shard& shard,
              std::size_t lines, const std::filesystem::path& folder, Texts texts);
  /// Is a round due when `done` lines are finished? The first is due before all lines, the last after them.
  bool due(std::size_t done) const;
  int rounds() const { return done_; }  ///< rounds measured so far, also by an interrupted run
  /// Measures the next round. `prompt` is the prompt of the next line. Drops a round during which
  /// `interrupted` became true.
  void measure(const PromptSpec& prompt, const std::function<bool()>& interrupted);
  /// Returns a function to call after each step of a line. Every drift_every steps, it times a forward of as
  /// many rows as the step fed and appends the time to `drift`; the first time after drift_every / 2 steps.
  /// The number of rows matters, because slow reading of weights slows down many rows less than few. Skips
  /// steps of more than calibration/rows rows. Empty when drift_every is 0, and on a device, because the host
  /// must not hold up its steps.
  std::function<void(const StepRecord&)> drift_watch(std::vector<TimedForward>& drift);

 private:
  bool watches_drift() const;
  ForwardTimer& timer(const std::string& draft);
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
  std::map<std::string, ForwardTimer> timers_;  ///< by draft; "": the target
};

/// Spreads `wanted` measurements evenly over `rounds` rounds: is one made in this round? Exactly `wanted`
/// rounds say yes. `phase` shifts them.
constexpr bool measured_in(int round, int rounds, int wanted, int phase) {
  const long at = (round + phase) % rounds;
  return wanted >= rounds || (at + 1) * wanted / rounds != at * wanted / rounds;
}

}  // namespace speclab
