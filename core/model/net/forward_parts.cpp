#include "core/base/error.h"
#include "core/model/net/session.h"
#include "core/model/net/transformer.h"

namespace speclab {

// The extra work of a forward that runs a part of the model or sees a part of the cache.

// Appends to the staged numbers the arrays that feeds with a view need in each layer.
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

// Hidden states of layers before the exit no longer exist when the rest runs, so taps there are refused.
void Model::check_taps_of_rest(const Feed& feed) const {
  const int exit = layers_[static_cast<std::size_t>(feed.layers.exit()) - 1] + 1;
  for (const Tap& tap : feed.taps) {
    SPECLAB_CHECK(tap.layer == kFinalNorm || tap.layer >= exit,
                  "a tap of layer {} in the rest of an early exit at {}", tap.layer, exit);
  }
}

// Loads the hidden states that an early exit kept, for all rows in flight.
void Model::resume(const Inputs& in, std::span<const Placed> sequences, float* x) const {
  for (const Placed& placed : sequences) {
    backend().copy_rows(placed.session->exit_rows_.data(), in.own, placed.rows.n, config().hidden, x);
    x += static_cast<std::size_t>(placed.rows.n) * static_cast<std::size_t>(config().hidden);
  }
}

// Copies into the sessions the hidden states after the last layer that ran. They go behind the states of
// earlier rows.
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
