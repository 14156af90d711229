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
#include "core/decoding/loop/executors/step_executor.h"

namespace speclab {

/// Decodes text with any strategy; no other code decodes. Each step handles all running sequences together:
/// draft -> verify (target forward and rule) -> emit -> commit -> observe -> record.
///
/// The loop owns the target's sessions, the clock and the counters. A StepExecutor verifies the drafts; the
/// loop chooses one when a generation starts. The time of a step is split without gaps into
/// the phases draft (draft and observe), target (forward), accept (turning rows into distributions, the rule)
/// and other (bookkeeping, emit, commit, recording). Row hashes, expected acceptance, ranks, distances, row
/// details, the copy of a step for the record and on_emit are outside the clock: their time is not measured.
/// Code inside the clock allocates no memory once the buffers have grown. With several sequences the times of
/// a step are those of the whole batch.
///
/// If an end token, a stop string or a limit lies inside an accepted path, the text ends there. Tests of
/// later tokens are not recorded. The address of a rule's coin contains the absolute position of the token
/// that it decides. The address of a draft's coin contains the step and the node. So does the address of a
/// coin of a rule that judges whole paths (rules_paths.cpp). So no coin is used twice, and no coin depends on
/// another sequence. A row of a forward does not depend on the other rows either (row invariance). Therefore
/// a sequence gets the same tokens, rows and counts whatever other sequences run in the batch. Strategies
/// that remember earlier requests (StrategyChoice::carries_memory) are an exception: their drafts depend on
/// these requests.
class DecodeLoop {
 public:
  /// Opens the target's sessions. If the strategy drafts ahead (StrategyInfo::drafts_ahead), divides the
  /// threads of the backend between target and draft first. Throws Error when the target does not predict
  /// every token, target and draft do not fit each other, the strategy lacks something that it needs (such as
  /// a draft), the threads cannot be divided, or the capacity exceeds the target's context.
  DecodeLoop(std::shared_ptr<const Model> target, std::shared_ptr<const Model> draft,
             const StrategyChoice& strategy, LoopOptions options);
  /// With several draft models, for strategies that use them (StrategyInfo::most_drafts).
  DecodeLoop(std::shared_ptr<const Model> target, std::vector<std::shared_ptr<const Model>> drafts,
             const StrategyChoice& strategy, LoopOptions options);
  ~DecodeLoop();

  /// Decodes from 1 to `batch` requests together; nothing may be running. Returns records in the order
  /// of the requests. Checks `stop` before each step. If a stop was requested, the generations end there with
  /// Finish::cancelled. Their records are complete up to that step, except that steps which a device ran by
  /// itself have no row hashes, details and phase times. Throws Error for a prompt that does not fit, for NaN
  /// logits and for options that contradict each other. One such request drops the whole batch. Then no
  /// request gets a record, even if the others are valid. The loop can be used again afterwards. add()
  /// refuses one request alone and leaves the others running.
  std::vector<GenerationRecord> run(std::span<const Request> requests, std::stop_token stop = {});
  GenerationRecord run(const Request& request, std::stop_token stop = {});

  // The functions below decode step by step. Requests may be added between any two steps.

  /// A generation that has ended.
  struct Finished {
    std::uint64_t ticket;
    GenerationRecord record;
  };
  bool has_room() const;  ///< another request can be admitted
  bool idle() const;      ///< nothing is running
  /// Prefills the prompt, decides the first token, and returns the number by which finished() names this
  /// generation. Throws Error when there is no room, the prompt does not fit or options contradict each
  /// other; the running sequences are not affected.
  std::uint64_t add(const Request& request);
  /// Runs one step of every running sequence. If it throws an Error (NaN logits, a draft that is too large),
  /// all running sequences end without a record.
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
  std::shared_ptr<const Model> undivided_;  ///< runs the prefills that loops share, on all threads
  std::vector<std::shared_ptr<const Model>> draft_models_;
  LoopOptions options_;
  std::string_view strategy_name_;  ///< static string
  int capacity_ = 0;
  RunningSequence* opening_ =
      nullptr;  ///< the sequence whose observe_prompt() or begin() runs; sessions opened now count for it
  /// The sequences, by slot. They are declared before the strategy, so they outlive it. They count the work
  /// of the sessions that the strategy holds.
  std::vector<std::unique_ptr<RunningSequence>> slots_;
  std::unique_ptr<Strategy> strategy_;
  Reads reads_;                            ///< what the strategy reads
  std::unique_ptr<StepExecutor> on_host_;  ///< shared by all sequences
  std::vector<std::vector<std::unique_ptr<StepExecutor>>>
      on_device_;  ///< by slot, in the order of executor_kinds()
  std::uint64_t tickets_ = 0;
  std::vector<Finished> finished_;

  // The current step. In all lists, the sequences of one executor are neighbours.
  std::vector<RunningSequence*> running_;
  std::vector<const Sequence*> sequences_;
  std::vector<Draft*> drafts_;
  std::vector<Outcome> outcomes_;
  std::vector<StepGroup> groups_;
};

}  // namespace speclab
