// The decode loop where the host drafts and a device verifies: a step is one trip through the ring, and what
// the strategy, the cuts and the record have of it is what they have of a step that the host verifies. The
// time of the verdict is in that of the target's forward. Rows of the target come to the host only for what
// the record has besides tokens and counts, outside the clock.
#include "core/base/error.h"
#include "core/decoding/loop/decode_slot.h"
#include "core/decoding/loop/device_verifier.h"

namespace speclab {

// Makes verifier_ that of this sequence; says why there is none.
std::string DecodeLoop::plan_verdicts(Slot& slot, const PlanShape& shape) {
  if (strategy_->reads_rows()) return fmt::format("{} learns from the target's rows", strategy_name_);
  if (strategy_->max_nodes() > kMostPlanNodes)
    return fmt::format("{} drafts up to {} nodes", strategy_name_, strategy_->max_nodes());
  if (!verifier_ || !verifier_->is_of(shape, *slot.session))
    verifier_ = DeviceVerifier::make(shape, *slot.session, scratch_);
  return verifier_ ? std::string()
                   : fmt::format("backend {} runs no steps by itself", target_->backend().name());
}

// Forward and verdict. The accepted path lies behind the pending token afterwards, whatever of it is emitted.
void DecodeLoop::verify_on_device(Slot& slot) {
  const std::vector<Token>& text = slot.sequence.tokens;
  slot.decided_from = slot.sequence.position();
  const RoundQueue queue =
      slot.request->options.device_graph == "off" ? RoundQueue::kLaunches : RoundQueue::kGraph;
  read_verdict(
      verifier_->verify(slot.draft, slot.decided_from, text[text.size() - 2], slot.sequence.coins, queue),
      slot.acceptance);
  slot.session->follow(slot.draft.tree.parents(), false, slot.draft.tree.size());
}

void DecodeLoop::fetch_rows(Slot& slot) {
  if (!options_.hash_rows && !options_.details) return;
  verifier_->download(
      std::span(slot.logits)
          .first(static_cast<std::size_t>(slot.draft.tree.size()) * static_cast<std::size_t>(slot.vocab())));
}

}  // namespace speclab
