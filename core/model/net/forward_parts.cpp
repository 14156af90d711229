#include "core/base/error.h"
#include "core/model/net/session.h"
#include "core/model/net/transformer.h"

namespace speclab {

// What a forward of a part of the model, or with a view of part of the cache, does besides the decoder
// itself.

// Appends to the numbers what feeds with a view need in each layer.
void Model::lay_out_views(std::span<const Feed> feeds, std::size_t positions) const {
  Workspace& s = *workspace_;
  s.viewed.clear();
  for (const Feed& feed : feeds) {
    if (feed.view != nullptr && feed.size() > 0) {
      lay_out_view(
          {*feed.view, feed.size(), feed.session->length_ + feed.after, positions, s.run, layers_, config()},
          s.numbers, s.viewed);
    }
    positions += feed.parents.size();
  }
}

// The hidden states before an exit are gone when its rest runs.
void Model::check_taps_of_rest(const Feed& feed) const {
  const int exit = layers_[static_cast<std::size_t>(feed.layers.exit()) - 1] + 1;
  for (const Tap& tap : feed.taps) {
    SPECLAB_CHECK(tap.layer == kFinalNorm || tap.layer >= exit,
                  "a tap of layer {} in the rest of an early exit at {}", tap.layer, exit);
  }
}

// Hidden states where an early exit left them, of all rows in flight.
void Model::resume(const Inputs& in, std::span<const Placed> sequences, float* x) const {
  for (const Placed& placed : sequences) {
    backend().copy_rows(placed.session->exit_rows_.data(), in.own, placed.rows.n, config().hidden, x);
    x += static_cast<std::size_t>(placed.rows.n) * static_cast<std::size_t>(config().hidden);
  }
}

// Puts the hidden states behind the last layer that ran into the sessions, which hold those of earlier rows.
void Model::keep_exit_rows(const Inputs& in, std::span<const Placed> sequences, const float* x) const {
  const auto hidden = static_cast<std::size_t>(config().hidden);
  for (const auto& [session, rows, views] : sequences) {
    float* to = backend().room(session->exit_rows_, static_cast<std::size_t>(session->scratch_) * hidden);
    backend().copy_rows(x, in.own, rows.n, config().hidden,
                        to + static_cast<std::size_t>(rows.earlier) * hidden);
    x += static_cast<std::size_t>(rows.n) * hidden;
  }
}

}  // namespace speclab
