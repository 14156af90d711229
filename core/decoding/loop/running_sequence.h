#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/measure/recorder.h"
#include "core/model/net/session.h"
#include "core/decoding/rules/accept.h"
#include "core/decoding/loop/generation.h"
#include "core/decoding/rows/processors.h"
#include "core/decoding/loop/step_states.h"
#include "core/decoding/stop_strings.h"
#include "core/decoding/strategy.h"

namespace speclab {

class StepExecutor;

/// One text to generate.
struct Request {
  TokenSpan prompt;  ///< at least one token; must stay valid until the generation has finished
  GenerationOptions options;
  Coins coins{0, 0};       ///< random numbers of this (seed, prompt)
  int turn = 0;            ///< number of this turn in a conversation; the prompt contains the earlier turns
  std::vector<Token> eos;  ///< the model's end tokens
  TokenSpan reference;     ///< autoregressive output of this prompt if a strategy needs it; else empty
};

/// The state of one sequence of the decode loop: its session on the target, its text so far, and the buffers
/// of its current step. The buffers are kept between steps and generations, so that a step allocates no
/// memory once they are large enough. The decode loop owns this object. Step executors fill the draft, the
/// target's rows and the verdict.
struct RunningSequence {
  std::unique_ptr<Session> session;           ///< on the target
  std::vector<Session*> draft_sessions;       ///< on the drafts; the strategy owns them
  std::vector<std::size_t> draft_of_session;  ///< by draft session, the number of its draft model
  std::vector<Session*> head_sessions;  ///< on the decoder layers of draft heads; the strategy owns them
  std::vector<HeadRunner*> heads;       ///< the strategy owns them
  StepExecutor* executor = nullptr;     ///< runs the steps of this generation
  Request request;
  std::uint64_t ticket = 0;  ///< what DecodeLoop::add() returned
  const AcceptanceRule* rule = nullptr;
  bool lossy = false;
  std::unique_ptr<LogitsProcessors> processors;  ///< null when none is active
  Sequence sequence;
  StopStrings stops;
  GenerationRecord out;
  bool running = false;

  // The current step.
  Draft draft;
  Acceptance acceptance;
  Acceptance again;                   ///< verdict of a second judge(), with details for the record
  std::int64_t decided_from = 0;      ///< position of the pending token when the draft was judged
  std::vector<float> logits;          ///< [nodes whose logits are needed, vocab]
  std::vector<float> maxima;          ///< see Feed::maxima; filled only if the strategy reads rows
  std::vector<std::int32_t> row_of;   ///< [nodes], row of `logits`; -1: none
  std::vector<Token> fed;             ///< [rows fed], the tokens; empty if the step is divided
  std::vector<std::int32_t> parents;  ///< [rows fed], indices into `fed`; -1: the last committed position
  std::vector<std::int32_t> rows;     ///< rows fed that want logits, ascending
  std::vector<DevicePart> parts;      ///< one per device if a step is divided over several; else empty
  StepStatesReader states;            ///< the hidden states that the strategy reads
  int state_fetches = 0;              ///< number of steps that waited for hidden states after the verdict
  std::vector<int> path;
  StepRecord step;  ///< reused, so that its lists keep their memory; out.steps gets copies
  int emitted = 0;
  bool limited = false;            ///< emit_at_most cut the accepted path of this step
  Work draft_before;               ///< the draft's work when the step began
  Work target_before;              ///< the target's work when the draft of the step began
  int committed_before = 0;        ///< positions that the target had committed when the draft began
  Work drafted_on_target;          ///< work on the target in this generation that was done to draft
  Work target_begun, draft_begun;  ///< work when decoding began, after prefill
  std::vector<Work> drafts_begun;  ///< draft_begun by draft model

  int vocab() const { return session->model().config().vocab; }
  StepRows step_rows() const { return {logits.data(), row_of, vocab(), maxima}; }
  std::span<const float> raw_logits(int node) const {
    return {logits.data() + static_cast<std::size_t>(row_of[node]) * vocab(),
            static_cast<std::size_t>(vocab())};
  }
  /// The logits after a node in the form that sampling uses: the logits processors are applied. They see the
  /// text up to and including the node. If there are processors, call target_row(node) first.
  std::span<const float> row(int node) const {
    return processors ? std::span<const float>(processed_[node]) : raw_logits(node);
  }
  /// The work so far of all sessions and heads that draft for this sequence, plus the work that the strategy
  /// did on the target's session while it drafted.
  Work draft_work() const;
  /// The work so far of the sessions on each of `count` draft models.
  std::vector<Work> work_by_draft(std::size_t count) const;

  /// Sets the limits of the next draft and puts the pending token at its root. `capacity` is the number of
  /// positions of the session.
  void begin_step(int capacity);
  /// Gives each node of the draft that needs logits its row of `logits` (row_of), and makes room for these
  /// rows.
  void expect_rows();
  /// The target's distributions at a node. The first call for the node in a step computes them.
  TargetRow target_row(int node);
  /// Judges the draft with the rule. Needs the rows of every node that the rule may look at.
  void judge(Acceptance& result);
  /// Appends one token to the text. Returns false if the text ends with this token; then out.finish says why.
  bool take(Token token, int capacity, const std::function<void(Token, std::string&)>& bytes);
  /// Appends the accepted path and the next token to the text. Stops at the first token that ends the text.
  /// First it shortens the path to what GenerationOptions::emit_at_most allows.
  void emit(int capacity, const std::function<void(Token, std::string&)>& bytes);
  /// If the forward left the hidden states that the strategy reads in the backend's memory, brings them to
  /// the host, for all nodes or for the committed nodes (Reads::nodes). Call it after emit().
  void fetch_states(const Reads& reads);

 private:
  std::vector<Distribution> p_, raw_;          // [node 0 and candidates], filled by target_row()
  std::vector<std::vector<float>> processed_;  // the rows of these nodes after the logits processors
  std::vector<char> ready_;
  std::vector<Token> prefix_;
};

}  // namespace speclab
