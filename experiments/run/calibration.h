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

/// Costs measured apart from the lines, for predictions (a prediction never uses the times of the case that
/// it predicts). Many short rounds between the lines rather than one long one before them: other processes
/// change what the machine can do from second to second, and predictions and lines must see the same machine.
///
/// Forwards: the target over n rows, n = 1 .. 5 in every round (several turns), the others less often, and
/// each draft over 1 and 2, at the mean context of the run. Steps: each case decodes a few short texts in
/// all, outside its lines, which gives what a step costs besides the target's forward. Rounds go into
/// calibration.jsonl (results/SCHEMA.md); calibration_costs makes one table of them.
class Calibration {
 public:
  /// The autoregressive line of (case, prompt, seed) when it has been measured, else null.
  using Texts = std::function<const LineRecord*(const std::string&, const std::string&, std::uint64_t)>;

  /// `lines`: of the shard. Reads the rounds that an interrupted run of this shard left in `folder`; each
  /// shard measures rounds of its own. Everything handed over must outlive this.
  Calibration(const Experiment& experiment, const ModelSet& models, Decoder& decoder, const Shard& shard,
              std::size_t lines, const std::filesystem::path& folder, Texts texts);
  /// Whether a round is due when so many lines are done: the first before all lines, the last after them.
  bool due(std::size_t done) const;
  int rounds() const { return done_; }  ///< measured so far, those of an interrupted run too
  /// Measures the next round; `prompt` is the one of the next line. Nothing is kept of a round during which
  /// `interrupted` became true.
  void measure(const PromptSpec& prompt, const std::function<bool()>& interrupted);
  /// What to call behind each step of a line: every drift_every steps, first behind half as many, it times a
  /// forward of as many rows as the step fed, because what slows down the reading of weights slows down many
  /// rows less. Steps of more than calibration/rows are left out. Empty where none is wanted, and on a
  /// device, whose steps the host must not hold up.
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

/// Whether something wanted `wanted` times in `rounds` rounds is measured in this one: as evenly as it can
/// be, exactly so many times in all; `phase` moves it.
constexpr bool measured_in(int round, int rounds, int wanted, int phase) {
  const long at = (round + phase) % rounds;
  return wanted >= rounds || (at + 1) * wanted / rounds != at * wanted / rounds;
}

}  // namespace speclab
