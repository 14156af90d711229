#include "core/decoding/loop/step_states.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace speclab {

std::span<const float> StepStates::of(std::size_t layer, int node) const {
  SPECLAB_CHECK(
      layer < layers.size() && node >= 0 && static_cast<std::size_t>(node) < row_of.size() &&
          row_of[static_cast<std::size_t>(node)] >= 0,
      "the hidden state {} of node {} was not fetched: a strategy must name what it reads in reads()", layer,
      node);
  const auto row = static_cast<std::size_t>(row_of[static_cast<std::size_t>(node)]),
             size = static_cast<std::size_t>(width);
  return {layers[layer] + row * size, size};
}

std::span<const Tap> StepStatesReader::taps(const Reads& reads, const Session& session,
                                            std::span<const std::int32_t> rows_of_nodes) {
  forget(session);
  taps_.clear();
  if (reads.hidden.empty()) return {};
  Backend& device = session.model().backend();
  nodes_.assign(rows_of_nodes.begin(), rows_of_nodes.end());
  const std::size_t rows = nodes_.size(), size = rows * static_cast<std::size_t>(width_);
  host_.resize(std::max(host_.size(), reads.hidden.size() * size));
  const bool later = reads.nodes == Reads::Nodes::kCommitted;
  float* there = later ? device.room(there_, reads.hidden.size() * size) : nullptr;
  for (std::size_t i = 0; i < reads.hidden.size(); ++i) {
    const Memory memory = later ? Memory::kBackend : Memory::kHost;
    taps_.push_back({reads.hidden[i], (later ? there : host_.data()) + i * size, nodes_, memory});
  }
  if (later) {
    expect(reads.hidden.size(), {there, static_cast<int>(rows)}, rows);
    return taps_;
  }
  row_of_.resize(rows);
  std::iota(row_of_.begin(), row_of_.end(), 0);
  for (std::size_t i = 0; i < reads.hidden.size(); ++i) layers_.push_back(host_.data() + i * size);
  return taps_;
}

void StepStatesReader::take(const Reads& reads, const Session& session, StatesThere there, int nodes) {
  forget(session);
  if (reads.hidden.empty()) return;
  SPECLAB_CHECK(there.states != nullptr && nodes <= there.rows, "states of {} rows for {} nodes", there.rows,
                nodes);
  const auto count = static_cast<std::size_t>(nodes);
  host_.resize(std::max(host_.size(), reads.hidden.size() * count * static_cast<std::size_t>(width_)));
  expect(reads.hidden.size(), there, count);
}

// Forgets the states of the previous step.
void StepStatesReader::forget(const Session& session) {
  layers_.clear();
  row_of_.clear();
  waiting_ = false;
  width_ = session.model().config().hidden;
}

// Notes that the states of `nodes` nodes are in the backend's memory. Makes room for the lists of fetch().
void StepStatesReader::expect(std::size_t layers, StatesThere there, std::size_t nodes) {
  from_ = there;
  row_of_.assign(nodes, -1);
  wanted_.reserve(layers * nodes);
  layers_.reserve(layers);
  waiting_ = true;
}

void StepStatesReader::fetch(const Reads& reads, Session& session, std::span<const int> nodes) {
  SPECLAB_CHECK(waiting_, "no states of this step are in the backend's memory");
  waiting_ = false;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    row_of_[static_cast<std::size_t>(nodes[i])] = static_cast<std::int32_t>(i);
  wanted_.clear();
  for (std::size_t layer = 0; layer < reads.hidden.size(); ++layer) {
    for (const int node : nodes) wanted_.push_back(static_cast<std::int32_t>(layer) * from_.rows + node);
  }
  session.fetch_states(from_.states, wanted_, host_.data());
  for (std::size_t layer = 0; layer < reads.hidden.size(); ++layer)
    layers_.push_back(host_.data() + layer * nodes.size() * static_cast<std::size_t>(width_));
}

StepStates StepStatesReader::states() const { return {layers_, row_of_, width_}; }

}  // namespace speclab
