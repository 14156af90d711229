#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/decoding/drafting/heads/committed_states.h"
#include "core/decoding/strategy.h"
#include "core/model/heads/head_runner.h"

namespace speclab {

/// A strategy that drafts with a trained head from the target's states of committed positions. This class
/// keeps the states and a runner for each slot. A subclass loads the head and makes the drafts, one sequence
/// at a time. A draft depends only on the text up to the pending token. So nothing carries over to other
/// prompts.
class StatesDrafter : public Strategy {
 public:
  Reads reads() const final { return CommittedStates::reads(taps_); }
  int max_nodes() const final { return nodes_ > kUsualNodes ? nodes_ : 0; }
  void observe_prompt(const Sequence& sequence, const PromptStates& states) final;
  void begin(const Sequence& sequence) final;
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) final;
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) final;

 protected:
  struct Slot {
    CommittedStates states;
    std::unique_ptr<HeadRunner> runner;  // from begin() on
  };
  /// `taps`: the states that the head reads (Tap::layer). `all_states`: as in CommittedStates.
  StatesDrafter(const Resources& resources, std::vector<int> taps, bool all_states);
  StatesDrafter(const Resources& resources, int tap, bool all_states)
      : StatesDrafter(resources, std::vector<int>{tap}, all_states) {}

  const Resources& resources() const { return resources_; }
  int hidden() const { return resources_.target->config().hidden; }
  /// Sets the number of nodes of the largest draft, the pending token included.
  void set_nodes(int nodes) { nodes_ = nodes; }
  /// Downloads rows. The result is valid until the next call.
  std::span<const float> download(HeadRunner& runner, const HeadRows& rows);

  /// Called when a sequence starts. slot.states has the states of the prompt.
  virtual void start(const Sequence&, Slot&) {}
  /// Adds nodes below the pending token, at depths from 1 to `depth`, which is at least 1.
  virtual void draft_one(const Sequence& sequence, Slot& slot, Draft& draft, int depth) = 0;

 private:
  static constexpr int kUsualNodes = 128;  // see Strategy::max_nodes()
  Slot& slot_of(const Sequence& sequence) { return slots_[static_cast<std::size_t>(sequence.slot)]; }

  Resources resources_;
  std::vector<int> taps_;
  int nodes_ = 0;
  std::vector<Slot> slots_;  // [batch]
  std::vector<float> host_;
};

}  // namespace speclab
