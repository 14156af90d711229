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
struct StepCosts;

/// One sequence as a strategy sees it. `tokens` ends with the pending token, which
/// is not in the target's KV cache.
struct Sequence {
  int slot = 0;               ///< from 0 to batch - 1, constant as long as the sequence runs
  std::vector<Token> tokens;  ///< prompt and all emitted tokens
  int prompt_length = 0;
  int turn = 0;         ///< turn of a conversation; 0 starts a new conversation
  int depth_limit = 0;  ///< largest depth of a candidate that context and max_tokens allow in this step
  int probe_limit = 0;  ///< largest depth of a probe that the context allows in this step
  SamplingParams sampling;
  Coins coins{0, 0};
  bool coupled = false;   ///< coupled sampling: drafts use the target's Gumbel noise
  int noise_streams = 1;  ///< coupled sampling: number of streams; child k uses stream k mod noise_streams
  const LogitsProcessors* processors = nullptr;  ///< null when no processor is active
  TokenSpan eos;        ///< tokens that end the text; empty when the text continues after them
  TokenSpan reference;  ///< the autoregressive text of this turn; empty unless the strategy needs it
  std::int64_t position() const {
    return static_cast<std::int64_t>(tokens.size()) - 1;
  }  ///< position of the pending token
  /// The coin that draws the token of a node of the current draft. It belongs to this step and this
  /// node: when a later step draws a token for the same place in the text, it uses another coin. This
  /// is necessary for exactness. A token that was drawn but never tested may have influenced the rest
  /// of the draft (where a schedule stopped, how many tokens were copied). So it may have influenced
  /// where the step ended. If a later step used the same coin again, the text would be biased.
  Coins::Address draft_coin(int node) const {
    return {position(), Purpose::draft, static_cast<std::uint32_t>(node)};
  }
};

/// The target's logits rows of a step, before the logits processors, for drafters that learn from them
/// (Reads::rows).
struct StepRows {
  const float* logits = nullptr;           ///< [rows, vocab]
  std::span<const std::int32_t> row_of{};  ///< [nodes], row of each node; -1 for a relay
  int vocab = 0;
  std::span<const float>
      maxima{};  ///< block maxima, the largest logit of each group of a row (Feed::maxima in
                 ///< core/model/net/model.h); without them best() and top() pass over the whole row
  /// The whole row of a node, [vocab].
  std::span<const float> row(int node) const;
  /// The best token of a node's row, ties to the lowest id. Without logits processors it is the token of
  /// greedy decoding. For a row with NaN it is arbitrary, which is harmless: any token may be drafted.
  Token best(int node) const;
  /// The k best tokens of a node's row, best first, ties to the lowest id. If the row contains NaN, the
  /// tokens are arbitrary, and there may be fewer.
  void top(int node, int k, std::vector<Token>& out) const;
};

/// What became of the draft of one step. When a strategy sees it, the sequence already contains the emitted
/// tokens.
struct Outcome {
  const Draft* draft = nullptr;
  const Acceptance* acceptance = nullptr;
  int emitted = 0;      ///< tokens that this step emitted: accepted + 1, or fewer if the text ended before
  StepRows rows{};      ///< valid during observe(); empty unless the strategy reads them
  StepStates states{};  ///< valid during observe(); empty unless the strategy reads hidden states
};

/// How a strategy uses the target's own sessions while it drafts (self-speculation).
struct TargetUse {
  bool drafts = false;  ///< whether draft() runs forwards on Resources::target_session()
  /// The layers at which draft() may stop its forwards, in ascending order. The list also says what the
  /// verifying forward does with the rows that draft() leaves in flight (not committed) on the target's
  /// session. If the list is empty, the verifying forward drops these rows and runs all layers for the whole
  /// draft. Otherwise it keeps them and runs only the layers that they have not run yet. The rows in flight
  /// must then be the first nodes of the draft, in order. Each row must have stopped at a layer of this list,
  /// in a forward without a CacheView (core/model/net/layer_part.h). If the list is not empty, the strategy
  /// cannot read hidden states (Reads::hidden): the constructor of the decode loop throws Error.
  std::vector<int> exits;
};

/// What a strategy gets when it is made. All of it stays valid as long as the strategy exists.
struct Resources {
  std::shared_ptr<const Model> target;
  std::shared_ptr<const Model> draft;  ///< null when the case has no draft model
  /// All draft models of the case, in the order of the config. The first one is `draft`. Only strategies with
  /// StrategyInfo::most_drafts above 1 get more than one.
  std::vector<std::shared_ptr<const Model>> drafts;
  int batch = 1;
  int capacity = 0;  ///< largest number of positions of a sequence
  /// The table from which the option "budget": "auto" and the schedule `bandit` choose the size of drafts;
  /// null when there is none.
  std::shared_ptr<const StepCosts> costs;
  /// Opens a session on the draft model with room for `capacity` positions, or fewer if its context is
  /// shorter. Call it in begin(): the loop counts the session's work for the slot that begins. Keep the
  /// session as long as the strategy exists.
  std::function<std::unique_ptr<Session>()> open_draft;
  /// Opens a session on drafts[i] in the same way. The record counts the work of each draft model.
  std::function<std::unique_ptr<Session>(std::size_t i)> open_draft_at;
  /// Returns these resources with drafts[i] as the only draft model. A class that is written for one draft
  /// model (DraftCache, DraftChain, DraftLevels) can then run on any of several draft models.
  Resources with_draft(std::size_t i) const;
  /// Opens a session on another model, such as the decoder layers of a head (HeadFile::decoder_layers), with
  /// the room that open_draft() describes. The session runs on that model's backend. Its work counts as the
  /// draft's. Call it in observe_prompt() or begin(), and keep the session as long as the strategy exists.
  std::function<std::unique_ptr<Session>(const Model&)> open_session;
  /// Makes the runner that computes the modules of a head on the target's backend. Its work counts as the
  /// draft's. Call it where open_session() may be called, and keep the runner as long as the strategy exists.
  std::function<std::unique_ptr<HeadRunner>()> open_heads;
  /// The target's own session of a sequence, for a strategy that declares it in target_use(). Call it in
  /// draft() only. All text before the pending token is committed. Draft forwards may add rows in flight, but
  /// must not commit or rewind. Their work and time count as the draft's.
  std::function<Session&(const Sequence&)> target_session;
};

/// Describes the steps of a strategy that drafts in the same way in every step of a generation. A device can
/// then run whole steps without the host (core/decoding/loop/executors/planned_rounds.h). If it does, the
/// loop calls neither draft() nor observe().
struct DevicePlan {
  /// The tree that the draft model drafts: the number of children of each node, by depth. {1, 1, 1} is a
  /// chain. The length limit and the context may make the tree less deep. Empty: nothing is drafted.
  std::vector<int> widths;
  SamplingParams draft;  ///< how drafted tokens are sampled, with coins of Purpose::draft or coupled noise
};

/// A drafting strategy decides which tokens are drafted. The decode loop owns the target forward, the rule,
/// the clock and the counters.
class Strategy {
 public:
  virtual ~Strategy() = default;
  /// Largest number of nodes of a draft, the pending token included. Nodes that are fed to a draft model and
  /// then dropped count too. 0: at most 128.
  virtual int max_nodes() const { return 0; }
  /// Says which results of the target the strategy reads. Called once. By default a strategy reads
  /// none; rows and hidden states can then stay on a device, which verifies the drafts
  /// (core/decoding/loop/executors/device_verifier.h). A device also verifies if the strategy reads hidden
  /// states: the loop then fetches these states alone. If the strategy reads rows, each forward also computes
  /// the block maxima of these rows (StepRows::maxima), provided that the model can.
  virtual Reads reads() const { return {}; }
  /// Says whether the strategy drafts on the target's own sessions. Called once. By default it does not.
  virtual TargetUse target_use() const { return {}; }
  /// Called with the hidden states of the prompt if reads() asks for them: chunk by chunk during the prefill,
  /// before begin(). The sequence contains only the prompt.
  virtual void observe_prompt(const Sequence& sequence, const PromptStates& states);
  /// Returns the plan for a sequence whose target samples with `target`. No value means that the host
  /// drafts in every step. If the plan uses a draft model, begin() must open exactly one session on it for
  /// the sequence, and leave that session with the text before the pending token.
  virtual std::optional<DevicePlan> device_plan(const SamplingParams& target) const;
  /// Starts a sequence in its slot. The prompt and the first token are known. Strategies prefill
  /// the draft model's KV cache here; the time counts as prefill.
  virtual void begin(const Sequence& sequence) = 0;
  /// Fills drafts[i] for sequences[i]. drafts[i].tree already contains the pending
  /// token. If nothing is added, the step is autoregressive decoding. No candidate may be deeper than
  /// depth_limit, and no probe deeper than probe_limit. Sequences and drafts stay where they are until
  /// observe() or halt().
  virtual void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) = 0;
  /// Called after acceptance. Strategies roll back the draft model's KV cache, refill pools or adapt
  /// gamma here.
  virtual void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes);
  /// Called in place of observe() when a step fails after draft(). A strategy that goes on drafting on a
  /// thread of its own during the verification waits for that thread. By default it does nothing.
  virtual void halt();
};

}  // namespace speclab
