#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/measure/recorder.h"
#include "core/decoding/loop/device_verifier.h"
#include "core/decoding/loop/generation.h"
#include "core/decoding/loop/planned_rounds.h"
#include "core/decoding/loop/prefill_cache.h"
#include "core/decoding/registry.h"

namespace speclab {

/// One text to generate.
struct Request {
  TokenSpan prompt;  ///< at least one token; must stay valid during run()
  GenerationOptions options;
  Coins coins{0, 0};       ///< of (seed, prompt)
  int turn = 0;            ///< of a conversation, whose earlier turns are part of the prompt
  std::vector<Token> eos;  ///< the model's end tokens
  TokenSpan reference;     ///< autoregressive output of this prompt where a strategy needs it; else empty
};

struct LoopOptions {
  int batch = 1;     ///< most sequences decoded together
  int capacity = 0;  ///< positions per sequence; 0: the target's context
  /// Verify every node as the last token of a sequence of its own (its root path) instead of all in one tree:
  /// the same logits, more rows. For comparison only.
  bool batch_of_prefixes = false;
  /// Lookahead parallelism emulated: the tree is dealt out over so many devices (DividedTree), the part of
  /// each is a forward of its own on the one that is there; the same logits. Not together with
  /// batch_of_prefixes.
  int devices = 1;
  /// Rows in flight per sequence; 0: 128, or 1024 for a batch of prefixes, or 256 of each of several devices.
  int scratch = 0;
  bool hash_rows = true;  ///< fill row_hashes
  bool details = true;    ///< fill expected, rank and distance of tested tokens
  /// Where prompts are prefilled, shared with other loops of the same target and capacity; null: by the loop
  /// itself.
  std::shared_ptr<PrefillCache> prefills = nullptr;
  /// Appends the bytes of a token to a text; needed for stop strings only.
  std::function<void(Token, std::string&)> token_bytes = nullptr;
  /// Called after each step (and after prefill, with an empty record) with what it emitted, outside the
  /// clock.
  std::function<void(int slot, const StepRecord& step, TokenSpan emitted)> on_emit = nullptr;
};

/// The one place where text is decoded, with any strategy or none. Each iteration:
/// draft -> target forward -> accept -> commit -> observe, for all running sequences together.
///
/// It owns the target's sessions, the clock and the counters. The time of a step is split without gaps into
/// the phases draft (draft and observe), target (its forward), accept (standardising rows and the rule) and
/// other (bookkeeping, cuts, commit, recording). Hashing rows, expected acceptance, ranks, distances, the
/// copy of a step that the record keeps and on_emit are outside the clock; inside it nothing is allocated
/// once the buffers have grown. With several sequences the times of a step are those of the whole batch.
///
/// With GenerationOptions::device_loop a single sequence on a device that plans is decoded in rounds that the
/// device runs by itself (decode_planned.cpp), or where the host drafts it verifies the drafts
/// (decode_verified.cpp): the same tokens, coins, counts and work.
///
/// Limits: emission is cut at the first end token, stop string or limit inside an accepted path;
/// tests behind the cut are not recorded. A coin of the rule is addressed by the absolute position of the
/// token that it decides, a coin of a draft by the step and the node. So no coin is used twice.
class DecodeLoop {
 public:
  /// Opens the target's sessions. Throws Error when target and draft do not fit each other, the strategy
  /// needs a draft that is missing, or the capacity exceeds the target's context.
  DecodeLoop(std::shared_ptr<const Model> target, std::shared_ptr<const Model> draft,
             const StrategyChoice& strategy, LoopOptions options);
  ~DecodeLoop();

  /// Decodes the requests together (1 .. batch of them); records in their order. `stop` is looked at before
  /// each step; the records then end there, with Finish::cancelled. They are complete up to there, but for
  /// steps that a device ran by itself: those have no row hashes, details and times by phase. Throws Error
  /// for a prompt that does not fit, NaN logits, contradicting options; the loop can be used again
  /// afterwards.
  std::vector<GenerationRecord> run(std::span<const Request> requests, std::stop_token stop = {});
  GenerationRecord run(const Request& request, std::stop_token stop = {});

  const Model& target() const;
  int capacity() const;

 private:
  struct Slot;
  void start(Slot& slot, const Request& request);
  void prefill(Slot& slot);
  void lay_out_feeds();
  void check_scratch(std::size_t rows) const;
  void divide(Slot& slot);
  void forward_divided();
  void verify(Slot& slot);
  void emit(Slot& slot);
  void commit(Slot& slot);
  void commit_divided(Slot& slot);
  void record(Slot& slot);
  void look_closer(Slot& slot, int index);
  void tell(Slot& slot);
  std::string plan(Slot& slot);
  std::optional<DevicePlan> plan_of_steps(const Slot& slot) const;
  std::string plan_verdicts(Slot& slot, const PlanShape& shape);
  void verify_on_device(Slot& slot);
  void fetch_rows(Slot& slot);
  void decode_planned(Slot& slot, const std::stop_token& stop);
  void take_round(Slot& slot, const PlanRound& round);
  void follow_draft(Slot& slot, int accepted);
  void watch_rounds(Slot& slot, const PlanStart& begun);

  std::shared_ptr<const Model> target_;
  std::shared_ptr<const Model> draft_;
  LoopOptions options_;
  std::string_view strategy_name_;  ///< static string
  int capacity_ = 0;
  int scratch_ = 0;
  Slot* opening_ = nullptr;  ///< whose begin() runs: draft sessions opened now are its own
  std::vector<std::unique_ptr<Slot>>
      slots_;  ///< outlive the strategy, which may hold sessions counted in them
  std::unique_ptr<Strategy> strategy_;
  enum class OnDevice { kNothing, kVerdicts, kSteps };
  OnDevice on_device_ = OnDevice::kNothing;  ///< what a device does of the steps of this run without the host
  std::unique_ptr<PlannedRounds> rounds_;    ///< of the last plan
  std::unique_ptr<DeviceVerifier> verifier_;
  std::vector<Slot*> running_;
  std::vector<const Sequence*> sequences_;
  std::vector<Draft*> drafts_;
  std::vector<Outcome> outcomes_;
  std::vector<Feed> feeds_;
};

}  // namespace speclab
