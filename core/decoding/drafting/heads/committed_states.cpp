#include "core/decoding/drafting/heads/committed_states.h"

#include "core/base/error.h"

namespace speclab {

Reads CommittedStates::reads(int tap) {
  return {.rows = false, .hidden = {tap}, .nodes = Reads::Nodes::kCommitted, .prompt = true};
}

void CommittedStates::take(const float* rows, std::size_t count) {
  if (count == 0) return;
  if (!all_) {
    rows_.assign(rows + (count - 1) * width_, rows + count * width_);
    return;
  }
  rows_.insert(rows_.end(), rows, rows + count * width_);
}

void CommittedStates::take_prompt(const PromptStates& states) {
  SPECLAB_CHECK(states.layers.size() == 1, "states of {} layers", states.layers.size());
  if (states.begin == 0) rows_.clear();
  take(states.layers[0], static_cast<std::size_t>(states.count));
}

void CommittedStates::take_step(const Outcome& outcome) {
  // The step committed the pending token and all emitted tokens but the last one, which is pending now.
  for (int k = 0; k < outcome.emitted; ++k) {
    const int node = k == 0 ? 0 : outcome.acceptance->path[static_cast<std::size_t>(k) - 1];
    take(outcome.states.of(0, node).data(), 1);
  }
}

const float* CommittedStates::newest() const {
  SPECLAB_CHECK(rows_.size() >= width_, "no state of the target");
  return rows_.data() + (rows_.size() - width_);
}

}  // namespace speclab
