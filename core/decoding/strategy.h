#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/net/model.h"
#include "core/model/net/session.h"
#include "core/decoding/reads.h"
#include "core/decoding/rules/accept.h"
#include "core/decoding/rows/coins.h"
#include "core/decoding/rows/distribution.h"
#include "core/decoding/drafting/draft.h"

namespace speclab {

class HeadRunner;
class LogitsProcessors;

/// One sequence as a strategy sees it. `tokens` ends with the pending token, which is not in the target's
/// cache.
struct Sequence {
  int slot = 0;               ///< 0 .. batch-1, stable while the sequence lives
  std::vector<Token> tokens;  ///< prompt and everything emitted
  int prompt_length = 0;
  int turn = 0;         ///< of a conversation; 0 starts a new one
  int depth_limit = 0;  ///< most tokens that a drafted path may have at this step (context end, length limit)
  int probe_limit = 0;  ///< deepest probe at this step (context end alone)
  SamplingParams sampling;
  Coins coins{0, 0};
  bool coupled = false;                          ///< coupled sampling: drafts share the target's Gumbel noise
  const LogitsProcessors* processors = nullptr;  ///< context-dependent processors, null when none
  TokenSpan eos;  ///< the tokens that end the text; empty when it goes on behind them
  TokenSpan
      reference;  ///< what autoregressive decoding emitted for this prompt; empty unless the runner has it
  std::int64_t position() const {
    return static_cast<std::int64_t>(tokens.size()) - 1;
  }  ///< of the pending token
  /// The coin that draws the token of a node of the present draft. It belongs to this step and this node: a
  /// token that is drawn again for the same place in the text, after a rejection, is drawn with another coin.
  /// That must be so. The token that was not tested may have decided what else was drafted (when a schedule
  /// stopped, how much room was left for copies), hence where the step ended, and the coin would be biased
  /// in the steps that follow.
  Coins::Address draft_coin(int node) const {
    return {position(), Purpose::draft, static_cast<std::uint32_t>(node)};
  }
};

/// The target's rows of a step, before any processor, for drafters that learn from them
/// (Reads::rows).
struct StepRows {
  const float* logits = nullptr;           ///< [rows, vocab]
  std::span<const std::int32_t> row_of{};  ///< [nodes], the row of a node; -1 for a relay
  int vocab = 0;
  std::span<const float> maxima{};  ///< those of Feed, or none: then every answer is a pass over the row
  /// The best token of a node's row, ties to the lowest id: what greedy decoding would say there. Where the
  /// row holds NaN it is some token: nobody may trust a draft.
  Token best(int node) const;
  /// The k best tokens of a node's row, best first, ties to the lowest id. Of a row that holds NaN some
  /// tokens, perhaps fewer.
  void top(int node, int k, std::vector<Token>& out) const;
};

/// What became of a draft. The sequence already holds the emitted tokens when a strategy sees this.
struct Outcome {
  const Draft* draft = nullptr;
  const Acceptance* acceptance = nullptr;
  int emitted = 0;      ///< tokens emitted by this step, after cuts at EOS or the limit
  StepRows rows{};      ///< valid during observe(); empty unless the strategy reads them
  StepStates states{};  ///< the same with hidden states
};

/// What a strategy gets when it is made; it lives as long as the strategy.
struct Resources {
  std::shared_ptr<const Model> target;
  std::shared_ptr<const Model> draft;  ///< null when the case names none
  int batch = 1;
  int capacity = 0;  ///< positions that a sequence may reach
  /// Opens a session on the draft with room for `capacity` positions, or fewer when its context is shorter.
  /// Call it in begin(), for the slot that begins: the loop counts the session's work there. Keep the session
  /// as long as the strategy lives.
  std::function<std::unique_ptr<Session>()> open_draft;
  /// Opens a session with that room on another model of the target's backend: decoder layers of a head
  /// (HeadFile::decoder_layers). Its work counts as the draft's. Call it in observe_prompt() or begin(), and
  /// keep it as open_draft() says.
  std::function<std::unique_ptr<Session>(const Model&)> open_session;
  /// Makes what computes the modules of a head on the target's backend. Its work counts as the draft's. Call
  /// and keep it as open_session().
  std::function<std::unique_ptr<HeadRunner>()> open_heads;
};

/// What a strategy does in every step of a generation, where that can be said before it begins: then a device
/// runs whole steps without the host (core/decoding/loop/planned_rounds.h), and the loop asks the strategy
/// nothing between begin() and the end of the text.
struct DevicePlan {
  /// Children of each node of a tree from the draft model, by depth, limits permitting: {1, 1, 1} is a chain.
  /// Empty: no draft.
  std::vector<int> widths;
  SamplingParams draft;  ///< they are drawn from the draft's row with these, by Purpose::draft or coupled
};

/// Answers "what do you draft?"; the decode loop owns the target forward, the rule, the clock and the
/// counters. The second virtual interface of the project.
class Strategy {
 public:
  virtual ~Strategy() = default;
  /// Most nodes that a draft may have, the pending token included, when they may be more than 128; else 0.
  virtual int max_nodes() const { return 0; }
  /// What the strategy reads of the target, asked once. Nothing by default: rows and hidden states can stay
  /// on a device, which then verifies the drafts (core/decoding/loop/device_verifier.h). With rows, forwards
  /// also note maxima where the model can.
  virtual Reads reads() const { return {}; }
  /// Hidden states of the prompt where reads() asks for them: chunk by chunk during the prefill, before
  /// begin(). The sequence holds the prompt alone.
  virtual void observe_prompt(const Sequence& sequence, const PromptStates& states);
  /// The plan for a sequence whose target samples with `target`; none: every step asks the host for its
  /// draft. Of a draft model one session is open after begin(), with the text before the pending token in it.
  virtual std::optional<DevicePlan> device_plan(const SamplingParams& target) const;
  /// A sequence starts in its slot: prompt and first token are known. Prefill drafts here (timed as prefill).
  virtual void begin(const Sequence& sequence) = 0;
  /// Fills drafts[i] for sequences[i]; drafts[i].tree holds the pending token already. Adding nothing is
  /// autoregressive decoding. No candidate may be deeper than depth_limit, no probe than probe_limit.
  virtual void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) = 0;
  /// After acceptance: roll back the draft's cache, refill pools, adapt gamma.
  virtual void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes);
};

}  // namespace speclab
