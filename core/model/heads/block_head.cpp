#include "core/model/heads/block_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr int kMostContextRows = 128;  // positions that are added to a context at once

}  // namespace

BlockHead::BlockHead(const HeadCard& card, const std::shared_ptr<const Model>& target, int capacity)
    : form_(card.block), capacity_(capacity), states_(form_.taps.size()) {
  const HeadFile file = HeadFile::open(card.weights);
  Backend& backend = target->backend();
  const ModelConfig& c = form_.layers;
  const int d = c.hidden;
  if (!card.vocabulary_map.empty()) ids_ = file.token_ids(card.vocabulary_map, card.vocab);
  rows_ = ids_.empty() ? target->config().vocab : static_cast<int>(ids_.size());
  const auto rms = [&](const std::string& name, int width) {
    return file.norm(backend, name, NormKind::kRms, width, c.norm_eps);
  };
  fc_ = file.linear(backend, "fc", std::vector<int>(form_.taps.size(), d), d, Bias::kNone);
  context_norm_ = rms("hidden_norm", d);
  const Bias qkv_bias = c.qkv_bias ? Bias::kPresent : Bias::kNone,
             out_bias = c.attn_out_bias ? Bias::kPresent : Bias::kNone;
  for (int i = 0; i < c.layers; ++i) {
    const std::string at = fmt::format("layers.{}.", i), attention = at + "self_attn.", mlp = at + "mlp.";
    Layer layer;
    layer.attention_norm = rms(at + "input_layernorm", d);
    layer.qkv = file.stacked(backend, {attention + "q_proj", attention + "k_proj", attention + "v_proj"}, d,
                             {c.query_width(), c.kv_width(), c.kv_width()}, qkv_bias);
    if (c.qk_norm) {
      layer.q_norm = rms(attention + "q_norm", c.head_dim);
      layer.k_norm = rms(attention + "k_norm", c.head_dim);
    }
    layer.out = file.linear(backend, attention + "o_proj", {c.query_width()}, d, out_bias);
    layer.ffn_norm = rms(at + "post_attention_layernorm", d);
    layer.gate_up =
        file.stacked(backend, {mlp + "gate_proj", mlp + "up_proj"}, d, {c.ffn, c.ffn}, Bias::kNone);
    layer.down = file.linear(backend, mlp + "down_proj", {c.ffn}, d, Bias::kNone);
    layers_.push_back(std::move(layer));
  }
  norm_ = rms("norm", d);
  if (form_.queries) queries_.emplace(file, "mask_queries", count(), *target);
  if (!ids_.empty()) out_ = file.linear(backend, "lm_head", {d}, rows_, Bias::kNone);
  RopeTable table = make_rope_table(c.ropes.front(), capacity_ + form_.size);
  rope_ = {table.dims, backend.keep(std::move(table.cos)), backend.keep(std::move(table.sin))};
  order_.resize(static_cast<std::size_t>(form_.size));
  std::iota(order_.begin(), order_.end(), 0);
}

BlockHead::Context BlockHead::open() const { return {}; }

// Describes `count` rows in the slots after the committed ones. The rows' positions are also their slots.
// With `attend`, every row sees all rows: its path has the slots of all of them, and attention() gets the
// last position as the position of each row.
BlockHead::Rows BlockHead::place(Backend& backend, Context& context, int count, bool attend) const {
  const ModelConfig& c = form_.layers;
  if (!context.kv_.data)
    context.kv_ = backend.allocate_kv(c.layers, c.kv_heads, c.head_dim, capacity_ + form_.size);
  const auto n = static_cast<std::size_t>(count);
  std::vector<std::int32_t>& numbers = context.numbers_;
  numbers.resize(attend ? 3 * n + 1 + n * n : n);
  const auto at = [&](std::size_t first) { return numbers.begin() + static_cast<std::ptrdiff_t>(first); };
  std::iota(at(0), at(n), context.length_);
  if (attend) {
    std::fill(at(n), at(2 * n), context.length_ + count - 1);
    for (std::size_t row = 0; row <= n; ++row) *at(2 * n + row) = static_cast<std::int32_t>(row * n);
    for (std::size_t row = 0; row < n; ++row) std::copy(at(0), at(n), at(3 * n + 1 + row * n));
  }
  const std::int32_t* const staged = backend.stage(numbers, context.staged_);
  Rows rows;
  rows.stored.n = count;
  rows.stored.committed = context.length_;
  rows.stored.positions = rows.stored.slots = staged;
  if (!attend) return rows;
  rows.stored.path_begin = staged + 2 * n;
  rows.stored.paths = staged + 3 * n + 1;
  rows.attending = rows.stored;
  rows.attending.positions = staged + n;
  return rows;
}

// Computes q, k and v of the rows. Rows of a context need no q; computing it anyway costs little.
void BlockHead::project(HeadRunner& runner, const Layer& layer, const HeadRows& x) {
  const ModelConfig& c = form_.layers;
  runner.linear(layer.qkv, {&x}, qkv_);
  if (!c.qk_norm) return;
  Backend& backend = runner.backend();
  backend.rms_norm_heads(qkv_.data(), qkv_.width(), c.heads, layer.q_norm.weight.data(), c.norm_eps,
                         qkv_.rows(), c.head_dim);
  backend.rms_norm_heads(qkv_.data() + c.query_width(), qkv_.width(), c.kv_heads, layer.k_norm.weight.data(),
                         c.norm_eps, qkv_.rows(), c.head_dim);
}

// to = norm(rows of x_)
void BlockHead::normalise(HeadRunner& runner, const HeadNorm& norm, std::span<const std::int32_t> rows,
                          HeadRows& to) const {
  runner.select(x_, rows, to);
  runner.norm(norm, to);
}

// Counts attention as the forwards of a model do. Rows write their own keys and values. With `attend`, they
// also read all keys and values of the context and of these rows.
void BlockHead::count_work(HeadRunner& runner, const Context& context, int count, bool attend) const {
  const ModelConfig& c = form_.layers;
  const double keys = context.length_ + count;
  const double of_position =
      2.0 * c.kv_width() * c.layers * static_cast<double>(runner.backend().kv_number_bytes());
  Work work;
  work.kv_bytes = of_position * count;
  if (attend) {
    work.flops = 4.0 * c.query_width() * c.layers * count * keys;
    work.kv_bytes += of_position * keys;
  }
  runner.count(work);
}

void BlockHead::extend(HeadRunner& runner, Context& context, std::span<const float* const> states,
                       int count) {
  SPECLAB_CHECK(states.size() == states_.size(), "{} states of a position, {} taps", states.size(),
                states_.size());
  SPECLAB_CHECK(context.length_ + count <= capacity_, "{} + {} positions, room for {}", context.length_,
                count, capacity_);
  const ModelConfig& c = form_.layers;
  for (int done = 0; done < count;) {
    const int n = std::min(count - done, kMostContextRows);
    inputs_.clear();
    for (std::size_t i = 0; i < states.size(); ++i) {
      runner.put(states[i] + static_cast<std::size_t>(done) * static_cast<std::size_t>(c.hidden), n, c.hidden,
                 states_[i]);
      inputs_.push_back(&states_[i]);
    }
    runner.linear(fc_, inputs_, x_);
    runner.norm(context_norm_, x_);
    const Rows rows = place(runner.backend(), context, n, false);
    for (int i = 0; i < c.layers; ++i) {
      project(runner, layers_[static_cast<std::size_t>(i)], x_);
      runner.backend().rope_and_store(qkv_.data(), c.heads, rope_.rotation(), rows.stored, context.kv_, i);
    }
    count_work(runner, context, n, false);
    context.length_ += n;
    done += n;
  }
}

void BlockHead::logits(HeadRunner& runner, Context& context, Token pending, int wanted, HeadRows& to) {
  SPECLAB_CHECK(wanted >= 1 && wanted <= count(), "{} of {} masked positions", wanted, count());
  SPECLAB_CHECK(context.length_ < capacity_, "a block at position {}, room for {}", context.length_,
                capacity_);
  const ModelConfig& c = form_.layers;
  const int n = form_.size;
  Backend& backend = runner.backend();
  if (queries_) {
    queries_->after(runner, pending, count(), x_);
  } else {
    tokens_.assign(static_cast<std::size_t>(n), form_.mask);
    tokens_.front() = pending;
    runner.embed(tokens_, x_);
  }
  const Rows rows = place(backend, context, n, true);
  for (int i = 0; i < c.layers; ++i) {
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    normalise(runner, layer.attention_norm, order_, y_);
    project(runner, layer, y_);
    backend.rope_and_store(qkv_.data(), c.heads, rope_.rotation(), rows.stored, context.kv_, i);
    float* const attended = runner.room(attended_, n, c.query_width());
    backend.attention(qkv_.data(), c.heads, context.kv_, i, rows.attending, attended);
    runner.linear(layer.out, {&attended_}, y_);
    runner.add(y_, x_);
    normalise(runner, layer.ffn_norm, order_, y_);
    runner.linear(layer.gate_up, {&y_}, raised_);
    float* const activated = runner.room(activated_, n, c.ffn);
    backend.activate(Activation::kSilu, true, raised_.data(), n, c.ffn, activated);
    runner.linear(layer.down, {&activated_}, y_);
    runner.add(y_, x_);
  }
  count_work(runner, context, n, true);
  normalise(runner, norm_, std::span<const std::int32_t>(order_).subspan(1, static_cast<std::size_t>(wanted)),
            y_);
  if (out_.parts.empty()) runner.logits(y_, FinalNorm::kDone, to);
  else runner.linear(out_, {&y_}, to);
}

}  // namespace speclab
