#include "core/decoding/drafting/heads/committed_states.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace speclab {

Reads CommittedStates::reads(std::vector<int> taps) {
  return {.rows = false, .hidden = std::move(taps), .nodes = Reads::Nodes::kCommitted, .prompt = true};
}

// Makes room for the states of `count` more positions, and drops the earlier ones unless all stay.
float* CommittedStates::grow(std::size_t count) {
  if (!all_) rows_.clear();
  const std::size_t before = rows_.size();
  rows_.resize(before + count * width_);
  return rows_.data() + before;
}

void CommittedStates::take_prompt(const PromptStates& states) {
  SPECLAB_CHECK(states.layers.size() == layers_, "states of {} layers, expected {}", states.layers.size(),
                layers_);
  if (states.begin == 0) rows_.clear();
  const auto count = static_cast<std::size_t>(states.count);
  if (count == 0) return;
  const std::size_t first = all_ ? 0 : count - 1;
  float* to = grow(count - first);
  for (std::size_t position = first; position < count; ++position)
    for (const float* rows : states.layers) to = std::copy_n(rows + position * of_layer_, of_layer_, to);
}

void CommittedStates::take_step(const Outcome& outcome) {
  // The step committed the pending token and all emitted tokens but the last one, which is pending now.
  for (int k = 0; k < outcome.emitted; ++k) {
    const int node = k == 0 ? 0 : outcome.acceptance->path[static_cast<std::size_t>(k) - 1];
    float* to = grow(1);
    for (std::size_t layer = 0; layer < layers_; ++layer)
      to = std::copy_n(outcome.states.of(layer, node).data(), of_layer_, to);
  }
}

const float* CommittedStates::newest() const {
  SPECLAB_CHECK(rows_.size() >= width_, "no state of the target");
  return rows_.data() + (rows_.size() - width_);
}

}  // namespace speclab
