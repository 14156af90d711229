#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/net/model.h"
#include "core/decoding/loop/loop_options.h"
#include "core/decoding/loop/running_sequence.h"
#include "core/decoding/strategy.h"

namespace speclab {

/// Running sequences whose steps one executor runs together. The three lists have the same length and order.
struct StepGroup {
  StepExecutor* executor = nullptr;
  std::span<RunningSequence* const> running;
  std::span<const Sequence* const> sequences;
  std::span<Draft* const> drafts;
};

/// Runs most parts of a step for a group of sequences: draft, target forward, verdict, commit and observe.
/// The decode loop chooses an executor when a generation starts. In every step it calls the functions from
/// draft() to fetch_rows(), in the order in which they are declared. One file holds one executor and its
/// factory make_NAME_executor(). A new executor also needs a line in step_executor.cpp.
///
/// All executors give the same verdicts, bit for bit. They differ in where and how the target's rows are
/// computed, and in who judges the drafts.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;

  /// Prepares for a generation whose prompt is in the KV cache. If this executor cannot run the steps of the
  /// generation, returns the reason; otherwise returns an empty string. Called for each generation.
  virtual std::string begin(RunningSequence& sequence) = 0;
  /// Rows in flight (fed, but not committed) that a session needs for a draft of at most `nodes` nodes.
  virtual int rows_in_flight(int nodes) const;

  /// Fills the drafts. By default it asks the strategy, and counts the work that the strategy does on the
  /// target's sessions as work of the draft. If a device runs whole steps, the executor reads the device's
  /// draft instead.
  virtual void draft(Strategy& strategy, const StepGroup& group);
  /// Decides which rows are fed to the target. Throws Error when they are too many.
  virtual void lay_out(const StepGroup& group) = 0;
  /// Runs the target's forward.
  virtual void forward(const StepGroup& group) = 0;
  /// Fills RunningSequence::acceptance. By default the host applies the rule.
  virtual void judge(const StepGroup& group);
  /// Keeps the rows of the pending token and of all emitted tokens except the last one in the target's KV
  /// cache, and drops the others. The last emitted token is the new pending token. (The divided executor
  /// does not keep the rows of accepted tokens. It feeds these tokens again in the next step.)
  virtual void commit(RunningSequence& sequence) = 0;
  /// Tells the strategy what became of its drafts. Does nothing if the device drafted.
  virtual void observe(Strategy& strategy, const StepGroup& group, std::span<const Outcome> outcomes);

  /// Brings the rows of the step to the host for the record, outside the clock. Returns false if finish()
  /// adds the parts of the record that need the rows.
  virtual bool fetch_rows(RunningSequence&) { return true; }
  /// The text has ended or was cancelled: completes its record.
  virtual void finish(RunningSequence& sequence);
};

/// Every session has room for at least this many rows in flight.
inline constexpr int kLeastRowsInFlight = 128;

/// What an executor may know of its loop. Everything outlives the executor.
struct ExecutorSetting {
  const Model* target = nullptr;
  const LoopOptions* options = nullptr;
  const Strategy* strategy = nullptr;
  const Reads* reads = nullptr;  ///< what the strategy reads
  TargetUse use = {};            ///< how the strategy uses the target's sessions
  std::string_view strategy_name;
  int capacity = 0;  ///< positions of a sequence
  int scratch = 0;   ///< rows in flight that each session has room for
};

/// A kind of executor.
struct ExecutorKind {
  std::string_view name;
  /// Whether a device runs or verifies the steps of one sequence. If so, each sequence has an executor of its
  /// own; otherwise all sequences share one.
  bool on_device;
  /// Makes an executor. Returns null if a loop with these options does not use this kind.
  std::unique_ptr<StepExecutor> (*make)(const ExecutorSetting&);
};
/// All kinds in the order in which they are tried.
std::span<const ExecutorKind> executor_kinds();

/// Throws Error when a draft needs more rows than the sessions have room for.
void check_rows_in_flight(const ExecutorSetting& setting, std::size_t rows, std::string_view advice);

}  // namespace speclab
