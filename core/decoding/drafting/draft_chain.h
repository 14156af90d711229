#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/drafting/schedule.h"
#include "core/decoding/strategy.h"

namespace speclab {

struct DraftChainOptions {
  int gamma = 4;
  DraftSampling draft{};
  ScheduleOptions schedule;
  void fields(OptionVisitor& visit);
};

/// Drafts a chain with a draft model that has its own cache: the drafter of classic speculation, which other
/// strategies use too. One draft forward per depth advances all sequences of a batch. A sequence drafts
/// nothing beyond the context of the draft model.
class DraftChain {
 public:
  /// Chooses the token at `depth` (from 1) that is submitted and fed to the draft instead of the drawn one.
  /// For simulated acceptance.
  using Substitute = std::function<Token(const Sequence& sequence, int depth)>;

  /// resources.draft must be set.
  DraftChain(const DraftChainOptions& options, const Resources& resources);
  ~DraftChain();

  /// The plan of draft(), if the schedule is constant.
  std::optional<DevicePlan> device_plan(const SamplingParams& target) const;
  /// Starts a sequence: prefills its prompt.
  void begin(const Sequence& sequence);
  /// Appends a chain below node 0 of each draft: nodes 1, 2, ..., each with the q that its token was drawn
  /// from, by Sequence::draft_coin or the coupled noise of its position. With `substitute` the nodes are
  /// one-hot. Sets source and ended_by_schedule. Drafts must hold only the pending token.
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts,
             const Substitute& substitute = nullptr);
  /// The best token other than the drafted one at a depth of the current draft, by the draft's distribution
  /// (at temperature 0 that of temperature 1). It was not drawn. If it is added as another child, after the
  /// drafted one, it is one-hot.
  struct RunnerUp {
    int depth;
    Token token;
    float probability;
  };
  /// Makes draft() find the runner-ups from now on, at the cost of a pass over each row.
  void want_runner_ups() { want_runner_ups_ = true; }
  /// The runner-ups of the last draft(), by depth.
  std::span<const RunnerUp> runner_ups(const Sequence& sequence);
  /// Makes drafts end before a token if the probability of the whole draft with it, by the
  /// draft's distribution, is less than this. Only at temperature 0: leaving out a drawn token
  /// for its value would change the law.
  void leave_out_below(double probability) { leave_out_below_ = probability; }
  /// Tells the schedule that `drafted` tokens of this chain were submitted and `accepted` of them accepted.
  void observe(const Sequence& sequence, int drafted, int accepted);

 private:
  struct Slot;
  Slot& slot(const Sequence& sequence);
  bool extend(Slot& slot);  ///< adds a token from the slot's logits; false when the draft is complete

  DraftChainOptions options_;
  Resources resources_;
  std::vector<std::unique_ptr<Slot>> slots_;  ///< [batch]
  std::vector<Slot*> active_;                 ///< reused by draft()
  std::vector<Feed> feeds_;
  bool want_runner_ups_ = false;
  double leave_out_below_ = 0;
  Distribution soft_;  ///< scratch: the draft's distribution at temperature 1
  std::vector<Token> best_;
};

}  // namespace speclab
