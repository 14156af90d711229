#include "core/model/transformer.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/model/session.h"

namespace speclab {
namespace {

float* sized(std::vector<float>& buffer, std::size_t rows, int width) {
  const std::size_t need = rows * static_cast<std::size_t>(width);
  if (buffer.size() < need) buffer.resize(need);
  return buffer.data();
}

}  // namespace

// The decoder, once for all families: embedding, layers of attention and feed-forward, head; see ModelConfig. All
// sequences go through the matrix products together and through attention one by one.
void Model::forward(std::span<const Feed> feeds) const {
  const Weights& w = *weights_;
  const ModelConfig& c = w.config;
  Backend& device = *w.backend;
  Workspace& s = *workspace_;

  s.tokens.clear();
  s.depths.clear();
  s.positions.clear();
  s.slots.clear();
  s.paths.clear();
  s.path_begin.assign(1, 0);
  std::size_t wanted = 0;
  for (const Feed& feed : feeds) {
    Session& session = *feed.session;
    const int n = static_cast<int>(feed.tokens.size());
    SPECLAB_CHECK(&session.model() == this, "a session of {} fed to {}", session.model().name(), name());
    SPECLAB_CHECK(n <= session.scratch_ && feed.parents.size() == feed.tokens.size(), "{} tokens, {} parents, room for {}", n, feed.parents.size(), session.scratch_);
    const std::size_t base = s.depths.size();
    std::int64_t keys = 0, layer_keys = 0;
    for (int i = 0; i < n; ++i) {
      const int parent = feed.parents[static_cast<std::size_t>(i)];
      SPECLAB_CHECK(parent < i && parent >= -1, "node {} has parent {}", i, parent);
      const Token token = feed.tokens[static_cast<std::size_t>(i)];
      if (token < 0 || token >= w.embedding.out) {
        throw Error({"token fed to " + name(), std::to_string(token), "an id below " + std::to_string(w.embedding.out), ""});
      }
      const int depth = parent < 0 ? 0 : s.depths[base + static_cast<std::size_t>(parent)] + 1;
      const int position = session.length_ + depth;
      if (position >= c.context && c.layers > 0) {
        throw Error({"position of a token fed to " + name(), std::to_string(position), "a position below its context of " + std::to_string(c.context), ""});
      }
      s.tokens.push_back(token);
      s.depths.push_back(depth);
      s.positions.push_back(position);
      s.slots.push_back(session.length_ + i);
      s.paths.resize(s.paths.size() + static_cast<std::size_t>(depth) + 1);
      for (int node = i, at = static_cast<int>(s.paths.size()) - 1; node >= 0; node = feed.parents[static_cast<std::size_t>(node)]) {
        s.paths[static_cast<std::size_t>(at--)] = session.length_ + node;
      }
      s.path_begin.push_back(s.paths.size());
      keys += position + 1;
      layer_keys += keys_of(position);
    }
    session.parents_.assign(feed.parents.begin(), feed.parents.end());
    session.work_ += work(n, static_cast<std::int64_t>(feed.rows.size()), session.length_, keys, layer_keys);
    wanted += feed.rows.size();
  }
  const std::size_t n = s.tokens.size();
  if (n == 0) return;
  const int rows = static_cast<int>(n);

  float* x = sized(s.residual, n, c.hidden);
  if (w.embed_projection.out > 0) {
    float* embedded = sized(s.embedded, n, c.embedding_dim);
    device.gather(w.embedding, s.tokens, embedded);
    device.linear(w.embed_projection, embedded, rows, x, false);
  } else {
    device.gather(w.embedding, s.tokens, x);
  }

  if (c.embedding_scale != 1) device.scale(c.embedding_scale, rows, c.hidden, x);
  if (c.position_rows > 0) {
    for (std::size_t i = 0; i < n; ++i) s.tokens[i] = s.positions[i] + c.position_offset;
    float* embedded = sized(s.branch, n, c.hidden);
    device.gather(w.positions, s.tokens, embedded);
    device.add(embedded, rows, c.hidden, x);
  }

  s.attention_rows.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    s.attention_rows[i] = {s.positions[i] - s.depths[i], std::span(s.paths).subspan(s.path_begin[i], s.path_begin[i + 1] - s.path_begin[i])};
  }
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
  const auto add_bias = [&](const std::vector<float>& bias, float* to) {
    if (!bias.empty()) device.add_bias(bias.data(), rows, static_cast<int>(bias.size()), to);
  };
  // x += W y + bias, or with a post norm x += norm(W y + bias)
  const auto add_to_residual = [&](const PackedMatrix& matrix, const float* y, const std::vector<float>& bias, const Weights::Norm& post) {
    float* to = c.post_norms ? branch : x;
    device.linear(matrix, y, rows, to, !c.post_norms);
    add_bias(bias, to);
    if (!c.post_norms) return;
    norm(branch, post, rows, branch);
    device.add(branch, rows, c.hidden, x);
  };
  for (std::size_t index = 0; index < layers_.size(); ++index) {
    const Weights::Layer& layer = w.layers[static_cast<std::size_t>(layers_[index])];
    norm(x, layer.attn_norm, rows, normed);
    device.linear(layer.qkv, normed, rows, qkv, false);
    add_bias(layer.qkv_bias, qkv);
    if (c.qk_norm) {
      const float eps = c.qk_norm_eps > 0 ? c.qk_norm_eps : c.norm_eps;
      device.rms_norm_heads(qkv, qkv_width, c.heads, layer.q_norm.data(), eps, rows, c.head_dim);
      device.rms_norm_heads(qkv + c.query_width(), qkv_width, c.kv_heads, layer.k_norm.data(), eps, rows, c.head_dim);
    }
    const AttentionForm form{c.attention_scale, c.attention_soft_cap, layer.window};
    std::size_t at = 0;
    for (const Feed& feed : feeds) {
      const std::size_t count = feed.tokens.size();
      if (count == 0) continue;
      const RopeTable* rope = layer.rope < 0 ? nullptr : &(*feed.session->ropes_)[static_cast<std::size_t>(layer.rope)];
      float* own = qkv + at * static_cast<std::size_t>(qkv_width);
      device.rope_and_store(own, static_cast<int>(count), c.heads, rope ? rope->cos.data() : nullptr, rope ? rope->sin.data() : nullptr,
                            std::span(s.positions).subspan(at, count), feed.session->kv_, static_cast<int>(index),
                            std::span(s.slots).subspan(at, count), rope ? rope->dims : 0);
      device.attention(own, c.heads, feed.session->kv_, static_cast<int>(index), std::span(s.attention_rows).subspan(at, count),
                       attended + at * static_cast<std::size_t>(c.query_width()), form);
      at += count;
    }
    if (c.parallel) norm(x, layer.ffn_norm, rows, branch);  // before attention is added
    add_to_residual(layer.attn_out, attended, layer.attn_out_bias, layer.attn_post_norm);
    if (!c.parallel) norm(x, layer.ffn_norm, rows, normed);
    device.linear(layer.gate_up, c.parallel ? branch : normed, rows, gate_up, false);
    add_bias(layer.gate_up_bias, gate_up);
    if (c.gated && c.activation == Activation::kSilu) device.silu_multiply(gate_up, rows, c.ffn, activated);
    else device.activate(c.activation, c.gated, gate_up, rows, c.ffn, activated);
    add_to_residual(layer.ffn_down, activated, layer.ffn_down_bias, layer.ffn_post_norm);
  }
  if (wanted == 0) return;

  // Only the rows whose logits are wanted pay for the head.
  float* hidden = sized(s.wanted, wanted, c.hidden);
  std::size_t base = 0, out = 0;
  for (const Feed& feed : feeds) {
    for (const std::int32_t row : feed.rows) {
      const float* from = x + (base + static_cast<std::size_t>(row)) * static_cast<std::size_t>(c.hidden);
      std::copy_n(from, c.hidden, hidden + out++ * static_cast<std::size_t>(c.hidden));
    }
    base += feed.tokens.size();
  }
  if (c.final_norm) norm(hidden, w.final_norm, static_cast<int>(wanted), hidden);
  const bool single = feeds.size() == 1;
  float* logits = single ? feeds[0].logits : sized(s.logits, wanted, c.head_rows());
  device.linear(w.head, hidden, static_cast<int>(wanted), logits, false);
  if (c.logit_soft_cap > 0) device.soft_cap(c.logit_soft_cap, static_cast<int>(wanted), c.head_rows(), logits);
  if (w.masked_rows > 0) {
    for (std::size_t row = 1; row <= wanted; ++row) {
      float* after = logits + row * static_cast<std::size_t>(c.head_rows());
      std::fill(after - w.masked_rows, after, -std::numeric_limits<float>::infinity());
    }
  }
  out = 0;
  for (const Feed& feed : feeds) {
    const std::size_t count = feed.rows.size();
    if (feed.hidden != nullptr) std::copy_n(hidden + out * static_cast<std::size_t>(c.hidden), count * static_cast<std::size_t>(c.hidden), feed.hidden);
    if (!single) std::copy_n(logits + out * static_cast<std::size_t>(c.head_rows()), count * static_cast<std::size_t>(c.head_rows()), feed.logits);
    out += count;
  }
}

}  // namespace speclab
