#include "core/model/net/transformer.h"

#include <algorithm>
#include <numeric>

#include "core/backend/device_timer.h"
#include "core/base/error.h"
#include "core/model/net/session.h"

namespace speclab {
namespace {

/// An upper limit of the positions of the feed's rows: the position that the last row would have in a chain.
/// If this limit is beyond the context, looks at the depths of the rows and returns the largest position
/// instead.
int last_position(const Feed& feed) {
  const std::span<const std::int32_t> in_flight = feed.session->parents_in_flight();
  const int earlier = feed.continues ? static_cast<int>(in_flight.size()) : 0;
  const int committed = feed.session->length() + feed.after, of_chain = committed + earlier + feed.size() - 1;
  if (of_chain < feed.session->model().config().context) return of_chain;
  int deepest = -1;
  for (int node = earlier; node < earlier + feed.size(); ++node) {
    int depth = -1;
    for (int at = node, parent = 0; at >= 0; at = parent < at ? parent : -1, ++depth)
      parent = at < earlier ? in_flight[static_cast<std::size_t>(at)]
                            : feed.parents[static_cast<std::size_t>(at - earlier)];
    deepest = std::max(deepest, depth);
  }
  return committed + deepest;
}

}  // namespace

// The decoder, written once for all model families (see ModelConfig): embedding, layers of attention and
// feed-forward, output head.

void Model::forward(std::span<const Feed> feeds) const { forward(feeds, false); }
void Model::forward_prompt(std::span<const Feed> feeds) const { forward(feeds, true); }

void Model::forward(std::span<const Feed> feeds, bool prompt) const {
  const Weights& w = *weights_;
  const ModelConfig& c = w.config;
  Backend& device = backend();
  Workspace& s = *workspace_;

  std::size_t n = 0, wanted = 0, tapped = 0, given = 0;
  bool maxima = false;
  for (const Feed& feed : feeds) {
    n += feed.parents.size(), wanted += feed.rows.size();
    for (const Tap& tap : feed.taps) tapped += nodes_of(tap, feed);
    if (feed.embeddings != nullptr && feed.embeddings_in == Memory::kBackend) given += feed.parents.size();
    if (feed.maxima != nullptr) feed.maxima->clear(), maxima = true;
  }
  const LayerPart part = feeds.empty() ? LayerPart() : feeds[0].layers;
  part.indices(layers_, name(), s.run);
  std::vector<std::int32_t>& numbers = s.numbers;
  const std::size_t position_rows = n, positions = 2 * n, slots = 3 * n, path_begin = 4 * n,
                    wanted_rows = 5 * n + 1, tapped_rows = wanted_rows + wanted,
                    given_rows = tapped_rows + tapped, lengths = given_rows + given,
                    paths = lengths + feeds.size();
  // All feeds are checked before rows of the first one are in flight. So an Error leaves the sessions as they
  // were.
  for (const Feed& feed : feeds) {
    const Session& session = *feed.session;
    SPECLAB_CHECK(&session.model() == this, "a session of {} fed to {}", session.model().name(), name());
    SPECLAB_CHECK(feed.tokens.size() == (feed.embeddings == nullptr ? feed.parents.size() : 0),
                  "{} tokens, {} parents", feed.tokens.size(), feed.size());
    SPECLAB_CHECK(c.beside == 0 || feed.size() == 0 || (feed.beside != nullptr && feed.embeddings != nullptr),
                  "a feed of {} without the second input that it reads", name());
    SPECLAB_CHECK(feed.layers == part, "feeds of one forward with different layers");
    if (part.rest()) check_taps_of_rest(feed);
    SPECLAB_CHECK(feed.attention == nullptr || (feed.view == nullptr && reads_attention()),
                  "the attention of a forward with a view, or on backend {}", device.name());
    for (const Token token : feed.tokens) check_token(token);
    // The rest of an early exit runs rows whose positions were checked when they began.
    const int position = part.rest() ? 0 : last_position(feed);
    if (position >= c.context && c.layers > 0) {
      throw Error({"position of a token fed to " + name(), std::to_string(position),
                   "a position below its context of " + std::to_string(c.context), ""});
    }
  }
  // If the forward fails later, for example because the device fails, the K/V of its rows are missing or
  // wrong. So the rows do not stay in flight.
  struct AddedRows {
    std::span<const Feed> feeds;
    std::size_t count = 0;  // feeds whose rows are in flight
    bool computed = false;
    ~AddedRows() {
      if (computed) return;
      for (const Feed& feed : feeds.first(count)) feed.session->drop_flight();
    }
  } added{feeds};
  numbers.resize(paths);
  numbers[path_begin] = 0;
  std::size_t at = 0, out = 0, tapped_out = tapped_rows, given_out = given_rows, next_length = lengths;
  for (const Feed& feed : feeds) {
    Session& session = *feed.session;
    const int count = feed.size(), committed = session.length_ + feed.after;
    numbers[next_length++] = committed;
    const int earlier = session.fly(feed.parents, {s.run, static_cast<int>(feed.rows.size()), feed.continues,
                                                   feed.after, feed.layers, feed.view});
    ++added.count;
    for (const std::int32_t row : feed.rows)
      numbers[wanted_rows + out++] = static_cast<std::int32_t>(at) + row;
    tapped_out = list_tapped_rows(feed, static_cast<std::int32_t>(at), tapped_out);
    if (feed.embeddings != nullptr && feed.embeddings_in == Memory::kBackend)
      for (int i = 0; i < count; ++i) numbers[given_out++] = i;
    for (int i = 0; i < count; ++i, ++at) {
      const int depth = session.depths_[static_cast<std::size_t>(earlier + i)], position = committed + depth;
      numbers[at] = feed.embeddings == nullptr ? feed.tokens[static_cast<std::size_t>(i)] : 0;
      numbers[position_rows + at] = position + c.position_offset;
      numbers[positions + at] = position;
      numbers[slots + at] = committed + earlier + i;
      numbers.resize(numbers.size() + static_cast<std::size_t>(depth) + 1);
      std::size_t to = numbers.size();
      for (int node = earlier + i; node >= 0; node = session.parents_[static_cast<std::size_t>(node)])
        numbers[--to] = committed + node;
      numbers[path_begin + at + 1] = static_cast<std::int32_t>(numbers.size() - paths);
    }
  }
  if (n == 0) {
    added.computed = true;
    return;
  }
  lay_out_views(feeds, positions);
  const std::size_t own = numbers.size();
  if (part.rest() || part.early_exit()) {
    numbers.resize(own + n);
    std::iota(numbers.begin() + static_cast<std::ptrdiff_t>(own), numbers.end(), 0);
  }
  const std::int32_t* const staged = device.stage(numbers, s.staged);
  s.views.clear();
  for (const StagedKeys& keys : s.viewed) s.views.push_back(keys.in(staged));
  const KeysInView* next_views = s.views.data();
  s.placed.clear();
  s.given.clear();
  at = 0;
  const std::int32_t *next_given = staged + given_rows, *length = staged + lengths;
  for (const Feed& feed : feeds) {
    const int count = feed.size();
    const std::int32_t* const own_length = length++;
    if (count == 0) continue;
    if (feed.embeddings != nullptr) {
      const bool there = feed.embeddings_in == Memory::kBackend;
      s.given.push_back({static_cast<int>(at), count, feed.embeddings, there ? next_given : nullptr});
      if (there) next_given += count;
    }
    RowsInFlight rows{count,
                      feed.session->length_ + feed.after,
                      staged + positions + at,
                      staged + slots + at,
                      staged + path_begin + at,
                      staged + paths};
    rows.committed_copy = own_length;
    if (feed.continues || part.rest()) rows.earlier = feed.session->in_flight() - count;
    s.placed.push_back(
        {feed.session, rows, feed.view != nullptr ? next_views : nullptr, feed.attention, feed.beside});
    if (feed.view != nullptr) next_views += s.run.size();
    at += feed.parents.size();
  }
  place_taps(feeds, staged + tapped_rows, tapped);
  const bool in_place = feeds.size() == 1 && device.host_memory();
  const Inputs in{static_cast<int>(n),
                  staged,
                  staged + position_rows,
                  staged + wanted_rows,
                  static_cast<int>(wanted),
                  maxima,
                  prompt,
                  s.taps,
                  s.given,
                  s.run,
                  part,
                  staged + own};
  DeviceTimer* const timer = feeds[0].timer;
  if (timer != nullptr) timer->begin();
  const float* next_logits = repeats(feeds, in) ? compute_recorded(in, s.placed[0])
                                                : compute(in, s.placed, in_place ? feeds[0].logits : nullptr);
  if (timer != nullptr) timer->stop();
  const auto deliver = [&](const float* from, std::size_t count, int columns, float* to) {
    device.download(from, count * static_cast<std::size_t>(columns) * sizeof(float), to);
    return from + count * static_cast<std::size_t>(columns);
  };
  deliver_taps(feeds);
  const float* next_maxima = s.maxima.data();
  for (const Feed& feed : feeds) {
    if (feed.rows.empty()) continue;
    if (!in_place) next_logits = deliver(next_logits, feed.rows.size(), c.head_rows(), feed.logits);
    if (!s.noted) continue;
    const std::size_t noted = feed.rows.size() * static_cast<std::size_t>(maxima_of(c.head_rows()));
    if (feed.maxima != nullptr) {
      feed.maxima->resize(noted);
      deliver(next_maxima, feed.rows.size(), maxima_of(c.head_rows()), feed.maxima->data());
    }
    next_maxima += noted;
  }
  if (wanted == 0)
    device
        .submit();  // without a download nothing else would start the work, and its buffers may be destroyed
  added.computed = true;
}

void Model::forward(Session& session, const QueuedRows& queued, float* logits,
                    std::span<const Tap> taps) const {
  SPECLAB_CHECK(&session.model() == this, "a session of {} fed to {}", session.model().name(), name());
  SPECLAB_CHECK(queued.rows.n > 0 && queued.rows.n <= session.scratch_, "{} rows, room for {}", queued.rows.n,
                session.scratch_);
  SPECLAB_CHECK(config().beside == 0, "queued rows of {}, which reads a second input", name());
  const Placed placed{&session, queued.rows};
  Inputs in{queued.rows.n, queued.tokens, queued.position_rows, queued.wanted, queued.wanted_count};
  in.run = all_;
  place_taps(taps, queued);
  in.taps = workspace_->taps;
  compute(in, {&placed, 1}, logits);
}

// All sequences go through the matrix products together and through attention one by one. Returns where the
// logits are: in `logits`, or in the workspace if `logits` is null. Returns null if no row wants logits.
const float* Model::compute(const Inputs& in, std::span<const Placed> sequences, float* logits) const {
  const Weights& w = *weights_;
  const ModelConfig& c = w.config;
  Backend& device = backend();
  Workspace& s = *workspace_;
  const int rows = in.n;
  const auto n = static_cast<std::size_t>(rows);
  const auto sized = [&](Buffer<float>& buffer, std::size_t count, int width) {
    return device.room(buffer, count * static_cast<std::size_t>(width));
  };

  const auto product = [&](const PackedMatrix& by, const float* from, float* to, bool accumulate) {
    if (in.prompt) device.prompt_linear(by, from, rows, to, accumulate);
    else device.linear(by, from, rows, to, accumulate);
  };
  float* x = sized(s.residual, n, c.hidden);
  if (in.part.rest()) resume(in, sequences, x);
  else embed_inputs(in, x);
  // Serves the taps of layers `from` to `to` from the current residual stream.
  const auto tap = [&](int from, int to) {
    for (const TappedRows& tapped : in.taps) {
      if (tapped.layer >= from && tapped.layer <= to)
        device.copy_rows(x, tapped.rows, tapped.count, c.hidden, tapped.to);
    }
  };

  const int qkv_width = c.query_width() + 2 * c.kv_width(), up_width = c.gated ? 2 * c.ffn : c.ffn;
  float* normed = sized(s.normed, n, c.hidden);
  float* qkv = sized(s.qkv, n, qkv_width);
  float* attended = sized(s.attended, n, c.query_width());
  float* gate_up = sized(s.gate_up, n, up_width);
  float* activated = sized(s.activated, n, c.ffn);
  float* branch = c.post_norms || c.parallel ? sized(s.branch, n, c.hidden) : nullptr;
  const auto norm = [&](const float* from, const Weights::Norm& by, int count, float* to) {
    if (c.norm == NormKind::kRms) device.rms_norm(from, by.weight.data(), c.norm_eps, count, c.hidden, to);
    else device.layer_norm(from, by.weight.data(), by.bias.data(), c.norm_eps, count, c.hidden, to);
  };
  const auto norm_form = [&](const Weights::Norm& by) {
    return NormForm{c.norm != NormKind::kRms, by.weight.data(), by.bias.data(), c.norm_eps};
  };
  const auto add_bias = [&](const Buffer<float>& bias, float* to) {
    if (!bias.empty()) device.add_bias(bias.data(), rows, static_cast<int>(bias.size()), to);
  };
  // x += W y + bias, or with a post norm x += norm(W y + bias). multiply(to, accumulate) computes to = W y,
  // or to += W y if `accumulate` is true.
  const auto add_to_residual = [&](const auto& multiply, const Buffer<float>& bias,
                                   const Weights::Norm& post) {
    float* to = c.post_norms ? branch : x;
    multiply(to, !c.post_norms);
    add_bias(bias, to);
    if (!c.post_norms) return;
    norm(branch, post, rows, branch);
    device.add(branch, rows, c.hidden, x);
  };
  const auto layer_number = [&](std::size_t at_run) {
    return at_run < in.run.size() ? layers_[static_cast<std::size_t>(in.run[at_run])] : c.layers;
  };
  tap(0, layer_number(0));
  for (std::size_t at_run = 0; at_run < in.run.size(); ++at_run) {
    const int index = in.run[at_run];
    const Weights::Layer& layer = w.layers[static_cast<std::size_t>(layer_number(at_run))];
    if (layer.attn_norm.weight.empty()) {
      product(layer.qkv, x, qkv, false);
    } else if (in.prompt) {
      norm(x, layer.attn_norm, rows, normed);
      product(layer.qkv, normed, qkv, false);
    } else {
      device.norm_linear(norm_form(layer.attn_norm), x, layer.qkv, rows, normed, qkv);
    }
    if (layer.qkv_beside.out > 0) {
      float* to = qkv;
      for (const Placed& placed : sequences) {
        if (in.prompt) device.prompt_linear(layer.qkv_beside, placed.beside, placed.rows.n, to, true);
        else device.linear(layer.qkv_beside, placed.beside, placed.rows.n, to, true);
        to += static_cast<std::size_t>(placed.rows.n) * static_cast<std::size_t>(qkv_width);
      }
    }
    add_bias(layer.qkv_bias, qkv);
    if (c.qk_norm) {
      const float eps = c.qk_norm_eps > 0 ? c.qk_norm_eps : c.norm_eps;
      device.rms_norm_heads(qkv, qkv_width, c.heads, layer.q_norm.data(), eps, rows, c.head_dim);
      device.rms_norm_heads(qkv + c.query_width(), qkv_width, c.kv_heads, layer.k_norm.data(), eps, rows,
                            c.head_dim);
    }
    const AttentionForm form{c.attention_scale, c.attention_soft_cap, layer.window};
    const Placed* alone = sequences.size() == 1 && !in.prompt ? &sequences[0] : nullptr;
    std::size_t at = 0;
    for (const Placed& placed : sequences) {
      Session& session = *placed.session;
      const RowsInFlight own = placed.rows_in(at_run);
      const Rotation rotation =
          layer.rope < 0 ? Rotation{} : (*session.ropes_)[static_cast<std::size_t>(layer.rope)].rotation();
      float* from = qkv + at * static_cast<std::size_t>(qkv_width);
      device.rope_and_store(from, c.heads, rotation, own, session.kv_, index);
      if (placed.attention != nullptr) read_attention(from, placed, at_run, form);
      if (alone == nullptr) {
        device.attention(from, c.heads, session.kv_, index, own,
                         attended + at * static_cast<std::size_t>(c.query_width()), form);
      }
      at += static_cast<std::size_t>(own.n);
    }
    if (c.parallel) norm(x, layer.ffn_norm, rows, branch);  // before attention is added to x
    add_to_residual(
        [&](float* to, bool accumulate) {
          if (alone == nullptr) return product(layer.attn_out, attended, to, accumulate);
          device.attention_linear(qkv, c.heads, alone->session->kv_, index, alone->rows_in(at_run), form,
                                  layer.attn_out, attended, to, accumulate);
        },
        layer.attn_out_bias, layer.attn_post_norm);
    const NormForm ffn_norm = c.parallel ? NormForm{} : norm_form(layer.ffn_norm);
    const FeedForward feed_forward{&layer.gate_up,
                                   layer.gate_up_bias.empty() ? nullptr : layer.gate_up_bias.data(),
                                   c.activation, c.gated, &layer.ffn_down};
    add_to_residual(
        [&](float* to, bool accumulate) {
          if (!in.prompt)
            return device.feed_forward(ffn_norm, c.parallel ? branch : x, feed_forward, rows, normed, gate_up,
                                       activated, to, accumulate);
          if (!c.parallel) norm(x, layer.ffn_norm, rows, normed);
          product(layer.gate_up, c.parallel ? branch : normed, gate_up, false);
          add_bias(layer.gate_up_bias, gate_up);
          device.activate(c.activation, c.gated, gate_up, rows, c.ffn, activated);
          product(layer.ffn_down, activated, to, accumulate);
        },
        layer.ffn_down_bias, layer.ffn_post_norm);
    tap(layer_number(at_run) + 1, layer_number(at_run + 1));
  }
  for (const TappedRows& tapped : in.taps) {
    if (tapped.layer != kFinalNorm) continue;
    device.copy_rows(x, tapped.rows, tapped.count, c.hidden, tapped.to);
    normalise(tapped.to, tapped.count, tapped.to);
  }
  if (in.part.early_exit()) keep_exit_rows(in, sequences, x);
  if (in.wanted_count == 0) return nullptr;

  // The output head runs only for rows whose logits are wanted.
  const int heads = in.wanted_count, width = c.head_rows();
  const auto wanted = static_cast<std::size_t>(heads);
  float* hidden = sized(s.wanted, wanted, c.hidden);
  device.copy_rows(x, in.wanted, heads, c.hidden, hidden);
  normalise(hidden, heads, hidden);
  if (logits == nullptr) logits = sized(s.logits, wanted, width);
  compute_logits(hidden, heads, in.maxima, logits);
  return logits;
}

}  // namespace speclab
