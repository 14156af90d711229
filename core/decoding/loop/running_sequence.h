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
#include "core/decoding/loop/stop_strings.h"
#include "core/decoding/strategy.h"

namespace speclab {

class StepExecutor;

/// One text to generate.
struct Request {
  TokenSpan prompt;  ///< at least one token; must stay valid until the generation has finished
  GenerationOptions options;
  Coins coins{0, 0};       ///< of (seed, prompt)
  int turn = 0;            ///< of a conversation; its earlier turns are part of the prompt
  std::vector<Token> eos;  ///< the model's end tokens
  TokenSpan reference;     ///< autoregressive output of this prompt where a strategy needs it; else empty
};

/// One sequence of the decode loop: its session on the target, its text so far, and the buffers of its
/// current step. The buffers are kept between steps and between generations, so that a step allocates nothing
/// once they have grown. The decode loop owns it; step executors read the draft and write rows and verdict.
struct RunningSequence {
  std::unique_ptr<Session> session;      ///< on the target
  std::vector<Session*> draft_sessions;  ///< on the draft; the strategy owns them
  std::vector<Session*> head_sessions;   ///< on decoder layers of its head; the strategy owns them
  std::vector<HeadRunner*> heads;        ///< the strategy owns them
  StepExecutor* executor = nullptr;      ///< runs the steps of this generation
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
  Acceptance again;                   ///< the verdict with everything that the record wants
  std::int64_t decided_from = 0;      ///< position of the pending token when the draft was judged
  std::vector<float> logits;          ///< [nodes that want a row, vocab]
  std::vector<float> maxima;          ///< see Feed::maxima; filled where the strategy reads rows
  std::vector<std::int32_t> row_of;   ///< [nodes], row of `logits`; -1: none
  std::vector<Token> fed;             ///< [rows fed]
  std::vector<std::int32_t> parents;  ///< [rows fed], indices into `fed`; -1: the last committed position
  std::vector<std::int32_t> rows;     ///< rows fed that want logits, ascending
  std::vector<DevicePart> parts;      ///< by device, where a step is divided over several; else empty
  StepStatesReader states;            ///< the hidden states that the strategy reads
  int state_fetches = 0;              ///< steps that waited for hidden states after the verdict
  std::vector<int> path;
  StepRecord step;  ///< its lists keep their memory; out.steps gets copies
  int emitted = 0;
  Work draft_before;               ///< the draft's work when the step began
  Work target_begun, draft_begun;  ///< work when decoding began, after prefill

  int vocab() const { return session->model().config().vocab; }
  StepRows step_rows() const { return {logits.data(), row_of, vocab(), maxima}; }
  std::span<const float> raw_logits(int node) const {
    return {logits.data() + static_cast<std::size_t>(row_of[node]) * vocab(),
            static_cast<std::size_t>(vocab())};
  }
  /// The row that is sampled from. Processors see the text up to and including the node.
  std::span<const float> row(int node) const {
    return processors ? std::span<const float>(processed_[node]) : raw_logits(node);
  }
  /// Work of everything that drafts, so far.
  Work draft_work() const;

  /// Sets the limits of the next draft and puts the pending token at its root. `capacity`: positions of the
  /// session.
  void begin_step(int capacity);
  /// Numbers the rows of the draft's nodes and makes room for them.
  void expect_rows();
  /// The standardised row of a node; computed when it is first asked for.
  TargetRow target_row(int node);
  /// Judges the draft with the rule. Needs the rows of every node that the rule may look at.
  void judge(Acceptance& result);
  /// Takes one token into the text. False: the text ends with it, and out.finish says why.
  bool take(Token token, int capacity, const std::function<void(Token, std::string&)>& bytes);
  /// Takes the accepted path and the next token into the text, up to the first cut.
  void emit(int capacity, const std::function<void(Token, std::string&)>& bytes);
  /// Fetches the hidden states that the strategy reads of the committed nodes only. After emit().
  void fetch_states(const Reads& reads);

 private:
  std::vector<Distribution> p_, raw_;          // [node 0 and candidates], filled when a rule asks for them
  std::vector<std::vector<float>> processed_;  // the same, rows after the processors
  std::vector<char> ready_;
  std::vector<Token> prefix_;
};

}  // namespace speclab
