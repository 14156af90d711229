#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/budget/budget_options.h"
#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/drafting/schedule.h"
#include "core/decoding/on_target/sparse_cache.h"
#include "core/decoding/on_target/token_exits.h"
#include "core/decoding/on_target/token_skips.h"
#include "core/decoding/strategy.h"

namespace speclab {

/// Options of DraftChain: length, sampling and schedule of the chains.
struct DraftChainOptions {
  int gamma = 4;
  DraftSampling draft{};
  ScheduleOptions schedule;
  void fields(OptionVisitor& visit);
};

/// For a chain on the target's own sessions, without a draft model (self-speculation). Every drafted row
/// attends to the K/V that the target committed, and to the drafted rows before it. The rows are not
/// committed; the strategy declares in target_use() what the verifying forward does with them.
struct ChainOnTarget {
  LayerPart layers;                   ///< the layers of each draft forward
  SparseCache* cache;                 ///< the committed positions that drafted rows see; null: all
  std::string_view source;            ///< static string, see Draft::source
  TokenExits* exits = nullptr;        ///< if set, chooses an exit for each token; forwards ignore `layers`
  const TokenSkips* skips = nullptr;  ///< if set, chooses layers for each token; forwards ignore `layers`
  /// For the costs of a draft forward: the most layers that it runs, if the number differs between tokens; 0:
  /// as `layers` says.
  int most_layers = 0;
};

/// Drafts a chain with a draft model that has its own KV cache, or with a part of the target on the target's
/// cache. A chain of a draft model is the drafter of classic speculative decoding; other strategies use it
/// too. One draft forward per depth advances all sequences of a batch. No chain is longer than the context of
/// the draft model allows. With a budget, a ShapeBudget chooses the length of each chain before it is drawn:
/// at most as many tokens as the schedule allows, perhaps none.
class DraftChain {
 public:
  /// Chooses a token at `depth` (from 1). The chain gets this token instead of the drawn one, and the
  /// draft model is fed with it. Simulated acceptance uses this.
  using Substitute = std::function<Token(const Sequence& sequence, int depth)>;

  /// resources.draft must be set, unless the chain runs on the target. With BudgetRule::automatic, and for a
  /// schedule that needs costs, resources.costs must have times of the draft model, or for a chain on the
  /// target the time of a layer. Throws Error if the costs lack these times, and if the schedule has a
  /// controller that was trained for another model than the one that runs the chain.
  DraftChain(const DraftChainOptions& options, const Resources& resources,
             BudgetRule budget = BudgetRule::fixed, std::optional<ChainOnTarget> on_target = std::nullopt);
  ~DraftChain();

  /// Describes draft() as a device plan. Returns no plan if the length of drafts may change (a budget, or a
  /// schedule that is not constant), if the record is to have probabilities of rows (top_probabilities), if
  /// rows are corrected, or if the chain runs on the target. Then the host drafts.
  std::optional<DevicePlan> device_plan(const SamplingParams& target) const;
  /// Starts a sequence: prefills its prompt into the draft model's cache, if there is one.
  void begin(const Sequence& sequence);
  /// Appends a chain below node 0 of each draft: nodes 1, 2, ... Each node has the q that its token was drawn
  /// from. Tokens are drawn with Sequence::draft_coin, or with the coupled noise of their position. With
  /// `substitute` the nodes are one-hot. Sets source (of drafts with a node), must_keep and
  /// ended_by_schedule. Drafts must hold only the pending token.
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts,
             const Substitute& substitute = nullptr);
  /// The most probable token at a depth of the current draft, apart from the drafted token. Its probability
  /// comes from the draft's distribution; at temperature 0, from the distribution at temperature 1. A
  /// runner-up was not drawn. So if it is added as a further child, after the drafted token, it is one-hot.
  struct RunnerUp {
    int depth;
    Token token;
    float probability;
  };
  /// Makes draft() find the runner-ups from now on, at the cost of a pass over each row.
  void want_runner_ups() { want_runner_ups_ = true; }
  /// The runner-ups of the last draft(), by depth.
  std::span<const RunnerUp> runner_ups(const Sequence& sequence);
  /// Makes drafts end before a token if the product of the draft's probabilities up to and including
  /// this token is less than `probability`. Works only at temperature 0. At higher temperatures tokens are
  /// drawn, and leaving out a drawn token because of its value would change the distribution of the text.
  void leave_out_below(double probability) { leave_out_below_ = probability; }
  /// Changes the logits of a row, [head_rows], from which the token at `depth` (from 1) is drawn. `state` is
  /// the state after the final norm, [hidden], from which the draft model's output head computed this row.
  using Correct = std::function<void(const Sequence& sequence, int depth, std::span<const float> state,
                                     std::span<float> logits)>;
  /// Makes draft() call `correct` for each row, before logits processors and sampling. So the q of a node is
  /// the corrected distribution that its token was drawn from. There is then no device plan. Call it before
  /// the first begin(), and not for a chain on the target.
  void correct_rows(Correct correct);
  /// The draft model's cache of a sequence. If other drafters work on the same text too, a strategy can ask
  /// how far the cache is behind, and can feed it with DraftCache::catch_up(). Not for a chain on the target.
  DraftCache& cache(const Sequence& sequence);
  /// Tells schedule and budget that `drafted` tokens of this chain were verified and `accepted` of them
  /// accepted.
  void observe(const Sequence& sequence, int drafted, int accepted);

 private:
  struct Slot;
  Slot& slot(const Sequence& sequence);
  bool extend(Slot& slot);  ///< adds a token from the slot's logits; false when the draft is complete
  void list_top(const Distribution& row, int count);  ///< fills top_ and pads it with 0
  std::int64_t room(Slot& slot, const Sequence& sequence) const;
  Feed next_feed(Slot& slot);
  void compute_rows();      ///< of all active slots
  void compute_skipping();  ///< the same, with the layers that ChainOnTarget::skips chooses

  DraftChainOptions options_;
  Resources resources_;
  bool has_budget_;
  std::optional<ChainOnTarget> on_target_;
  const Model* model_;                        ///< runs the chain
  std::vector<std::unique_ptr<Slot>> slots_;  ///< [batch]
  std::vector<Slot*> active_;                 ///< reused by draft()
  std::vector<Feed> feeds_;
  std::vector<TokenExits::Row> exiting_;
  bool want_runner_ups_ = false;
  double leave_out_below_ = 0;
  Correct correct_;    // empty: rows stay as they are
  Distribution soft_;  ///< scratch: the draft's distribution at temperature 1
  std::vector<Token> best_;
  std::vector<float> top_;  ///< scratch: the largest probabilities of a row, descending
};

}  // namespace speclab
