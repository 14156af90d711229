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
  taps_.clear();
  layers_.clear();
  row_of_.clear();
  if (reads.hidden.empty()) return {};
  Backend& device = session.model().backend();
  width_ = session.model().config().hidden;
  nodes_.assign(rows_of_nodes.begin(), rows_of_nodes.end());
  const std::size_t rows = nodes_.size(), size = rows * static_cast<std::size_t>(width_);
  host_.resize(std::max(host_.size(), reads.hidden.size() * size));
  const bool later = reads.nodes == Reads::Nodes::kCommitted;
  float* there = later ? device.room(there_, reads.hidden.size() * size) : nullptr;
  for (std::size_t i = 0; i < reads.hidden.size(); ++i) {
    const Memory memory = later ? Memory::kBackend : Memory::kHost;
    taps_.push_back({reads.hidden[i], (later ? there : host_.data()) + i * size, nodes_, memory});
  }
  if (later) return taps_;
  row_of_.resize(rows);
  std::iota(row_of_.begin(), row_of_.end(), 0);
  for (std::size_t i = 0; i < reads.hidden.size(); ++i) layers_.push_back(host_.data() + i * size);
  return taps_;
}

void StepStatesReader::fetch(const Reads& reads, Session& session, std::span<const int> committed) {
  row_of_.assign(nodes_.size(), -1);
  wanted_.assign(committed.begin(), committed.end());
  for (std::size_t i = 0; i < wanted_.size(); ++i)
    row_of_[static_cast<std::size_t>(wanted_[i])] = static_cast<std::int32_t>(i);
  const auto width = static_cast<std::size_t>(width_);
  for (std::size_t i = 0; i < reads.hidden.size(); ++i) {
    float* to = host_.data() + i * wanted_.size() * width;
    session.fetch_states(there_.data() + i * nodes_.size() * width, wanted_, to);
    layers_.push_back(to);
  }
}

StepStates StepStatesReader::states() const { return {layers_, row_of_, width_}; }

}  // namespace speclab
