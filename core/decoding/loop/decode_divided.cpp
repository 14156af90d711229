// The decode loop where a step's tree is divided over devices: the part of each is a forward of its own, one
// after the other on the one that is there, so that the time of each can be told.
#include <algorithm>
#include <numeric>
#include <span>

#include "core/measure/clock.h"
#include "core/decoding/loop/decode_slot.h"

namespace speclab {

void DecodeLoop::divide(Slot& slot) {
  slot.divided.assign(slot.draft.tree, slot.refeed, options_.devices);
  for (DividedTree::Part& part : slot.divided.parts()) {
    check_scratch(part.tokens.size());
    part.logits.resize(
        std::max(part.logits.size(), part.rows.size() * static_cast<std::size_t>(slot.vocab())));
  }
}

// All sequences' parts for one device go through one forward, as they would there. Rows that several devices
// have are the same bits.
void DecodeLoop::forward_divided() {
  for (std::size_t device = 0; device < static_cast<std::size_t>(options_.devices); ++device) {
    feeds_.clear();
    for (Slot* slot : running_) {
      DividedTree::Part& part = slot->divided.parts()[device];
      feeds_.push_back(
          {slot->session.get(), part.tokens, part.parents, part.rows, part.logits.data(), nullptr});
    }
    const std::int64_t begun = wall_now_ns();
    target_->forward(feeds_);
    const std::int64_t ns = wall_now_ns() - begun;
    for (Slot* slot : running_) {
      DividedTree::Part& part = slot->divided.parts()[device];
      part.ns = ns;
      const auto vocab = static_cast<std::size_t>(slot->vocab());
      for (std::size_t i = 0; i < part.rows.size(); ++i) {
        const auto node = static_cast<std::size_t>(
            part.nodes[static_cast<std::size_t>(part.rows[i]) - slot->refeed.size()]);
        std::copy_n(part.logits.data() + i * vocab, vocab,
                    slot->logits.data() + static_cast<std::size_t>(slot->row_of[node]) * vocab);
      }
    }
  }
}

// The cache gets what every device has fed: what the step before accepted, and the token that was pending.
void DecodeLoop::commit_divided(Slot& slot) {
  slot.path.resize(slot.refeed.size() + 1);
  std::iota(slot.path.begin(), slot.path.end(), 0);
  slot.session->commit(slot.path);
  slot.refeed.clear();
  for (const int node : std::span(slot.keep).subspan(1)) slot.refeed.push_back(slot.draft.tree.token(node));
}

}  // namespace speclab
