// How a forward serves its taps. The row numbers of all taps go to the backend with the other
// numbers of the forward. Each layer copies its tapped rows out of the residual stream, and rows for
// the host are downloaded at the end.
#include "core/model/net/taps.h"

#include "core/base/error.h"
#include "core/model/net/session.h"
#include "core/model/net/transformer.h"

namespace speclab {
namespace {

void check_layer(const Tap& tap, int layers) {
  SPECLAB_CHECK(tap.layer >= kFinalNorm && tap.layer <= layers, "a tap of layer {} of {}", tap.layer, layers);
}

}  // namespace

// Writes the row numbers of a feed's taps to the staged numbers, from `at` on. `first` is the number that the
// feed's first row has in the forward. Returns the next free place.
std::size_t Model::list_tapped_rows(const Feed& feed, std::int32_t first, std::size_t at) const {
  const int layers = config().layers, count = feed.size();
  for (const Tap& tap : feed.taps) {
    check_layer(tap, layers);
    for (std::size_t i = 0; i < nodes_of(tap, feed); ++i) {
      const std::int32_t node = tap.nodes.empty() ? static_cast<std::int32_t>(i) : tap.nodes[i];
      SPECLAB_CHECK(node >= 0 && node < count, "a tap of node {} of {}", node, count);
      workspace_->numbers[at++] = first + node;
    }
  }
  return at;
}

// Decides where each tap writes. `rows` are the row numbers of all taps in order, in the backend's memory.
void Model::place_taps(std::span<const Feed> feeds, const std::int32_t* rows, std::size_t count) const {
  Workspace& s = *workspace_;
  const auto width = static_cast<std::size_t>(config().hidden);
  s.taps.clear();
  if (count == 0) return;
  const bool host_memory = backend().host_memory();
  float* next = host_memory ? nullptr : backend().room(s.states, count * width);
  for (const Feed& feed : feeds) {
    for (const Tap& tap : feed.taps) {
      const std::size_t nodes = nodes_of(tap, feed);
      if (nodes == 0) continue;
      const bool in_place = host_memory || tap.memory == Memory::kBackend;
      s.taps.push_back({tap.layer, rows, static_cast<int>(nodes), in_place ? tap.out : next});
      rows += nodes;
      if (!in_place) next += nodes * width;
    }
  }
}

// The same for queued rows. Taps read the rows that need logits; the numbers of these rows are in the
// backend's memory already.
void Model::place_taps(std::span<const Tap> taps, const QueuedRows& rows) const {
  Workspace& s = *workspace_;
  s.taps.clear();
  for (const Tap& tap : taps) {
    check_layer(tap, config().layers);
    SPECLAB_CHECK(tap.memory == Memory::kBackend && tap.nodes.empty(),
                  "a tap of queued rows for the host, or of {} chosen nodes", tap.nodes.size());
    s.taps.push_back({tap.layer, rows.wanted, rows.wanted_count, tap.out});
  }
}

// Downloads the rows for the host and counts the bytes.
void Model::deliver_taps(std::span<const Feed> feeds) const {
  const auto width = static_cast<std::size_t>(config().hidden);
  const float* next = workspace_->states.data();
  for (const Feed& feed : feeds) {
    for (const Tap& tap : feed.taps) {
      if (tap.memory == Memory::kBackend) continue;
      const std::size_t numbers = nodes_of(tap, feed) * width;
      feed.session->work_.hidden_bytes += static_cast<double>(numbers * sizeof(float));
      if (backend().host_memory() || numbers == 0) continue;
      backend().download(next, numbers * sizeof(float), tap.out);
      next += numbers;
    }
  }
}

}  // namespace speclab
