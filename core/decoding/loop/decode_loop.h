#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "core/measure/recorder.h"
#include "core/decoding/loop/loop_options.h"
#include "core/decoding/registry.h"
#include "core/decoding/loop/running_sequence.h"
#include "core/decoding/loop/step_executor.h"

namespace speclab {

/// The one place where text is decoded, with any strategy or none. Each step, for all running sequences
/// together: draft -> verify (target forward and rule) -> emit -> commit -> observe -> record.
///
/// The loop owns the target's sessions, the clock and the counters. How a draft is verified is the business
/// of a StepExecutor, which is chosen when a generation starts. The time of a step is split without gaps into
/// the phases draft (draft and observe), target (forward), accept (standardising rows, the rule) and other
/// (bookkeeping, cuts, commit, recording). Row hashes, expected acceptance, ranks, distances, the copy of a
/// step for the record and on_emit are outside the clock. Inside it nothing is allocated once the buffers
/// have grown. With several sequences the times of a step are those of the whole batch.
///
/// Emission is cut at the first end token, stop string or limit inside an accepted path. Tests behind the cut
/// are not recorded. A coin of the rule is addressed by the absolute position of the token that it decides, a
/// coin of a draft by the step and the node. So no coin is used twice, and a sequence gets the same tokens,
/// rows and counts whatever else runs beside it.
class DecodeLoop {
 public:
  /// Opens the target's sessions. Throws Error when target and draft do not fit each other, the strategy
  /// needs a draft that is missing, or the capacity exceeds the target's context.
  DecodeLoop(std::shared_ptr<const Model> target, std::shared_ptr<const Model> draft,
             const StrategyChoice& strategy, LoopOptions options);
  ~DecodeLoop();

  /// Decodes the requests together (1 .. batch of them); nothing may be running. Returns records in their
  /// order. `stop` is looked at before each step; the records then end there, with Finish::cancelled. They
  /// are complete up to there, except that steps which a device ran by itself have no row hashes, details and
  /// phase times. Throws Error for a prompt that does not fit, NaN logits, contradicting options; the loop
  /// can be used again afterwards.
  std::vector<GenerationRecord> run(std::span<const Request> requests, std::stop_token stop = {});
  GenerationRecord run(const Request& request, std::stop_token stop = {});

  // The same step by step. Sequences may be admitted between any two steps.

  /// A generation that has ended.
  struct Finished {
    std::uint64_t ticket;
    GenerationRecord record;
  };
  bool has_room() const;  ///< another request can be admitted
  bool idle() const;      ///< nothing is running
  /// Prefills the prompt, decides the first token, and returns the number by which finished() names this
  /// generation. Throws Error when there is no room, the prompt does not fit or options contradict each
  /// other; the running sequences go on unharmed.
  std::uint64_t add(const Request& request);
  /// One step of every running sequence. An Error (NaN logits, a draft that is too large) ends all of them
  /// without a record.
  void step();
  /// Ends all running sequences with Finish::cancelled.
  void cancel();
  /// The generations that ended since the last call, in the order in which they ended.
  std::vector<Finished> finished();

  const Model& target() const;
  int capacity() const;

 private:
  void check(const Request& request) const;
  void start(RunningSequence& sequence, const Request& request);
  void prefill(RunningSequence& sequence);
  void choose_executor(RunningSequence& sequence);
  void begin_step();
  void retire(RunningSequence& sequence);
  void drop_all();

  std::shared_ptr<const Model> target_;
  std::shared_ptr<const Model> draft_;
  LoopOptions options_;
  std::string_view strategy_name_;  ///< static string
  int capacity_ = 0;
  RunningSequence* opening_ =
      nullptr;  ///< the sequence in Strategy::begin(); draft sessions opened now are its own
  /// By slot. They outlive the strategy, which may hold sessions that are counted here.
  std::vector<std::unique_ptr<RunningSequence>> slots_;
  std::unique_ptr<Strategy> strategy_;
  Reads reads_;                            ///< of the strategy
  std::unique_ptr<StepExecutor> on_host_;  ///< shared by all sequences
  std::vector<std::vector<std::unique_ptr<StepExecutor>>>
      on_device_;  ///< by slot, in the order of executor_kinds()
  std::uint64_t tickets_ = 0;
  std::vector<Finished> finished_;

  // The current step. Sequences of one executor stand side by side in all lists.
  std::vector<RunningSequence*> running_;
  std::vector<const Sequence*> sequences_;
  std::vector<Draft*> drafts_;
  std::vector<Outcome> outcomes_;
  std::vector<StepGroup> groups_;
};

}  // namespace speclab
