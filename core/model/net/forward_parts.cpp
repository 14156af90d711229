#include "core/backend/attention_reader.h"
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

// Hidden states of layers before the exit no longer exist when the rest runs, so taps of them are refused.
void Model::check_taps_of_rest(const Feed& feed) const {
  const int exit = layers_[static_cast<std::size_t>(feed.layers.begin()) - 1] + 1;
  for (const Tap& tap : feed.taps) {
    SPECLAB_CHECK(tap.layer == kFinalNorm || tap.layer >= exit,
                  "a tap of layer {} in the rest of an early exit at {}", tap.layer, exit);
  }
}

bool Model::reads_attention() const { return dynamic_cast<AttentionReader*>(&backend()) != nullptr; }

// Fills Feed::attention for layer number `at_run` (from 0) of the layers that run.
void Model::read_attention(const float* qkv, const Placed& placed, std::size_t at_run,
                           const AttentionForm& form) const {
  const RowsInFlight& rows = placed.rows;
  dynamic_cast<AttentionReader&>(backend()).read_attention(
      qkv, config().heads, placed.session->kv_, workspace_->run[at_run], rows, form,
      placed.attention + at_run * static_cast<std::size_t>(rows.committed));
}

// Loads the hidden states that an early exit kept, for the rows in flight that go on.
void Model::resume(const Inputs& in, std::span<const Placed> sequences, float* x) const {
  for (const Placed& placed : sequences) {
    const auto hidden = static_cast<std::size_t>(config().hidden);
    const float* from =
        placed.session->exit_rows_.data() + static_cast<std::size_t>(placed.rows.earlier) * hidden;
    backend().copy_rows(from, in.own, placed.rows.n, config().hidden, x);
    x += static_cast<std::size_t>(placed.rows.n) * hidden;
  }
}

// Copies into the sessions the hidden states after the last layer that ran. They go behind the states of
// earlier rows.
void Model::keep_exit_rows(const Inputs& in, std::span<const Placed> sequences, const float* x) const {
  const auto hidden = static_cast<std::size_t>(config().hidden);
  for (const auto& [session, rows, views, attention, beside] : sequences) {
    float* to = backend().room(session->exit_rows_, static_cast<std::size_t>(session->scratch_) * hidden);
    backend().copy_rows(x, in.own, rows.n, config().hidden,
                        to + static_cast<std::size_t>(rows.earlier) * hidden);
    x += static_cast<std::size_t>(rows.n) * hidden;
  }
}

}  // namespace speclab
