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

/// Drafts a chain from a model with a cache of its own: the drafter of classic speculation, and a part of
/// strategies that need one. All sequences of a batch advance through one forward of the draft per depth.
/// Where the context of the draft model ends it drafts no more.
class DraftChain {
 public:
  /// The token to submit at `depth` (from 1) instead of the drawn one, and feed to the draft; for simulated
  /// acceptance.
  using Substitute = std::function<Token(const Sequence& sequence, int depth)>;

  /// resources.draft must be set.
  DraftChain(const DraftChainOptions& options, const Resources& resources);
  ~DraftChain();

  /// What draft() does when its schedule is constant; else none.
  std::optional<DevicePlan> device_plan(const SamplingParams& target) const;
  /// Prefills the prompt.
  void begin(const Sequence& sequence);
  /// Appends a chain under node 0 of each draft: nodes 1, 2, ..., each with the q that its token was drawn
  /// from (Sequence::draft_coin, or the coupled noise of its position). With `substitute` nodes are
  /// one-hot. Sets source and ended_by_schedule. Drafts must hold the pending token alone.
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts,
             const Substitute& substitute = nullptr);
  /// The best token but the drafted one at a depth of the present draft, by the draft's own distribution (at
  /// temperature 0 that of temperature 1). Nothing drew it: as another child, after the drafted one, it is
  /// one-hot.
  struct RunnerUp {
    int depth;
    Token token;
    float probability;
  };
  /// From now on draft() looks for them, a pass over each row.
  void want_runner_ups() { want_runner_ups_ = true; }
  /// Of the last draft(), by depth.
  std::span<const RunnerUp> runner_ups(const Sequence& sequence);
  /// From now on a draft ends before a token to which the draft's own distribution gives less than this, all
  /// tokens of the draft together. At temperature 0 only: a token that was drawn is never left out for its
  /// value.
  void leave_out_below(double probability) { leave_out_below_ = probability; }
  /// `drafted` tokens of this chain were submitted and `accepted` of them accepted; moves the schedule.
  void observe(const Sequence& sequence, int drafted, int accepted);

 private:
  struct Slot;
  Slot& slot(const Sequence& sequence);
  bool extend(Slot& slot);  ///< takes a token from the slot's logits; false: the draft is complete

  DraftChainOptions options_;
  Resources resources_;
  std::vector<std::unique_ptr<Slot>> slots_;  ///< [batch]
  std::vector<Slot*> active_;                 ///< reused by draft()
  std::vector<Feed> feeds_;
  bool want_runner_ups_ = false;
  double leave_out_below_ = 0;
  Distribution soft_;  ///< scratch: the draft's row at temperature 1
  std::vector<Token> best_;
};

}  // namespace speclab
