#include "core/model/heads/falcon/falcon_head.h"

#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace speclab {

FalconHead::FalconHead(const HeadCard& card, const std::shared_ptr<const Model>& target, int capacity,
                       int blocks)
    : form_(card.falcon),
      capacity_(capacity),
      slots_(capacity + blocks * card.falcon.block),
      rows_(target->config().head_rows()),
      ids_(target->config().head_ids) {
  const HeadFile file = HeadFile::open(card.weights);
  Backend& backend = target->backend();
  const ModelConfig& c = form_.layer;
  const int d = c.hidden;
  lstm_.emplace_back(file, backend, "lstm", std::vector<int>{d, d}, d, form_.lstm_layers);
  const std::string attention = "layers.0.self_attn.", mlp = "layers.0.mlp.";
  qkv_ =
      file.stacked(backend, {attention + "q_proj", attention + "k_proj", attention + "v_proj"}, d,
                   {c.query_width(), c.kv_width(), c.kv_width()}, c.qkv_bias ? Bias::kPresent : Bias::kNone);
  out_ = file.linear(backend, attention + "o_proj", {c.query_width()}, d, Bias::kNone);
  norm_ = file.norm(backend, "layers.0.post_attention_layernorm", NormKind::kRms, d, c.norm_eps);
  gate_up_ = file.stacked(backend, {mlp + "gate_proj", mlp + "up_proj"}, d, {c.ffn, c.ffn}, Bias::kNone);
  down_ = file.linear(backend, mlp + "down_proj", {c.ffn}, d, Bias::kNone);
  if (!card.vocabulary_map.empty()) {
    ids_ = file.token_ids(card.vocabulary_map, card.vocab);
    rows_ = static_cast<int>(ids_.size());
    head_ = file.linear(backend, "lm_head", {d}, rows_, Bias::kNone);
  }
  RopeTable table = make_rope_table(c.ropes.front(), slots_);
  rope_ = {table.dims, backend.keep(std::move(table.cos)), backend.keep(std::move(table.sin))};
}

void FalconHead::clear(HeadRunner& runner, Context& context) {
  const ModelConfig& c = form_.layer;
  if (!context.kv_.data) context.kv_ = runner.backend().allocate_kv(c.layers, c.kv_heads, c.head_dim, slots_);
  context.length_ = 0;
  context.newest_count_ = 0;
  lstm_.front().start(runner, 1, context.lstm_);
}

void FalconHead::extend(HeadRunner& runner, Context& context, const float* states, TokenSpan after) {
  const int count = static_cast<int>(after.size()), d = form_.layer.hidden;
  SPECLAB_CHECK(context.length() + count <= capacity_, "{} + {} positions, room for {}", context.length(),
                count, capacity_);
  for (int i = 0; i < count; ++i) {
    runner.put(states + static_cast<std::size_t>(i) * static_cast<std::size_t>(d), 1, d, state_);
    runner.embed(after.subspan(static_cast<std::size_t>(i), 1), embedded_);
    const HeadRows* const pair[] = {&embedded_, &state_};
    lstm_.front().step(runner, pair, context.lstm_);
    const HeadRows* const parts[] = {&context.newest_, &context.lstm_.output()};
    const std::span<const HeadRows* const> all(parts);
    runner.stack(context.newest_count_ == 0 ? all.last(1) : all, longer_);
    const bool full = longer_.rows() > form_.block;
    if (full) store_oldest(runner, context);
    order_.resize(static_cast<std::size_t>(longer_.rows() - (full ? 1 : 0)));
    std::iota(order_.begin(), order_.end(), full ? 1 : 0);
    runner.select(longer_, order_, context.newest_);
    context.newest_count_ = context.newest_.rows();
  }
}

// Stores K/V of the first row of longer_, whose position is no longer among the newest k.
void FalconHead::store_oldest(HeadRunner& runner, Context& context) {
  order_.assign(1, 0);
  runner.select(longer_, order_, rows_of_);
  runner.linear(qkv_, {&rows_of_}, projected_);
  context.numbers_.assign(1, context.length_);
  const std::int32_t* const staged = runner.backend().stage(context.numbers_, context.staged_);
  RowsInFlight rows;
  rows.n = 1;
  rows.committed = context.length_;
  rows.positions = rows.slots = staged;
  runner.backend().rope_and_store(projected_.data(), form_.layer.heads, rope_.rotation(), rows, context.kv_,
                                  0);
  ++context.length_;
}

// Describes the rows of a level. Their slots follow the slots of the levels above. Every row of a block sees
// the whole block, so for attention() (`attending`) each row has the position of the block's last row.
RowsInFlight FalconHead::place(Backend& backend, Context& context, const Level& level, bool attending) const {
  const int k = form_.block, blocks = static_cast<int>(level.slots.size()), n = blocks * k,
            first = context.length_ + level.depth * k;
  std::vector<std::int32_t>& numbers = context.numbers_;
  numbers.clear();
  for (int row = 0; row < n; ++row) numbers.push_back(first + (attending ? k - 1 : row % k));
  for (const std::vector<std::int32_t>& slots : level.slots)
    numbers.insert(numbers.end(), slots.end() - k, slots.end());
  std::int32_t begin = 0;
  for (const std::vector<std::int32_t>& slots : level.slots) {
    for (int row = 0; row < k; ++row) {
      numbers.push_back(begin);
      begin += static_cast<std::int32_t>(slots.size());
    }
  }
  numbers.push_back(begin);
  for (const std::vector<std::int32_t>& slots : level.slots)
    for (int row = 0; row < k; ++row) numbers.insert(numbers.end(), slots.begin(), slots.end());
  const std::int32_t* const staged = backend.stage(numbers, context.staged_);
  RowsInFlight rows;
  rows.n = n;
  rows.committed = context.length_;
  rows.earlier = level.fed - n;
  rows.positions = staged;
  rows.slots = staged + n;
  rows.path_begin = staged + 2 * n;
  rows.paths = staged + 3 * n + 1;
  return rows;
}

// Runs the decoder layer over the rows of a level. `inputs` are outputs of the LSTM.
void FalconHead::run(HeadRunner& runner, Context& context, HeadRows& inputs, Level& level) {
  const ModelConfig& c = form_.layer;
  const int n = inputs.rows();
  Backend& backend = runner.backend();
  SPECLAB_CHECK(context.length_ + level.fed <= slots_, "{} + {} rows, room for {}", context.length_,
                level.fed, slots_);
  runner.linear(qkv_, {&inputs}, projected_);
  backend.rope_and_store(projected_.data(), c.heads, rope_.rotation(), place(backend, context, level, false),
                         context.kv_, 0);
  float* const attended = runner.room(attended_, n, c.query_width());
  backend.attention(projected_.data(), c.heads, context.kv_, 0, place(backend, context, level, true),
                    attended);
  runner.linear(out_, {&attended_}, added_);
  runner.add(added_, inputs);
  const HeadRows* const all[] = {&inputs};
  runner.stack(all, normed_);
  runner.norm(norm_, normed_);
  runner.linear(gate_up_, {&normed_}, raised_);
  float* const activated = runner.room(activated_, n, c.ffn);
  backend.activate(Activation::kSilu, true, raised_.data(), n, c.ffn, activated);
  runner.linear(down_, {&activated_}, added_);
  runner.add(added_, inputs);
  runner.stack(all, level.outputs);
  // Attention, counted as in the forwards of a model.
  double keys = 0;
  for (const std::vector<std::int32_t>& slots : level.slots)
    keys += static_cast<double>(form_.block) * (context.length_ + static_cast<double>(slots.size()));
  Work work;
  work.flops = 4.0 * c.query_width() * keys;
  work.kv_bytes =
      2.0 * c.kv_width() * static_cast<double>(backend.kv_number_bytes()) * (n + keys / form_.block);
  runner.count(work);
}

void FalconHead::first(HeadRunner& runner, Context& context, Level& level) {
  const int k = form_.block;
  SPECLAB_CHECK(context.newest_count_ == k, "a block after {} of {} positions", context.newest_count_, k);
  level.depth = 0;
  level.fed = k;
  level.slots.assign(1, std::vector<std::int32_t>(static_cast<std::size_t>(k)));
  std::iota(level.slots.front().begin(), level.slots.front().end(), context.length_);
  order_.assign(1, 0);
  LstmLayers::select(runner, context.lstm_, order_, level.lstm);
  const HeadRows* const parts[] = {&context.newest_};
  runner.stack(parts, inputs_);
  run(runner, context, inputs_, level);
}

void FalconHead::next(HeadRunner& runner, Context& context, const Level& above,
                      std::span<const std::int32_t> parents, TokenSpan tokens, Level& level) {
  const int k = form_.block, blocks = static_cast<int>(parents.size());
  SPECLAB_CHECK(&above != &level && blocks > 0 && static_cast<int>(tokens.size()) == blocks * k,
                "{} blocks with {} tokens", blocks, tokens.size());
  level.depth = above.depth + 1;
  level.fed = above.fed + blocks * k;
  level.slots.clear();
  for (int block = 0; block < blocks; ++block) {
    level.slots.push_back(above.slots[static_cast<std::size_t>(parents[static_cast<std::size_t>(block)])]);
    for (int row = 0; row < k; ++row)
      level.slots.back().push_back(context.length_ + above.fed + block * k + row);
  }
  LstmLayers::select(runner, above.lstm, parents, level.lstm);
  for (int row = 0; row < k; ++row) {  // the LSTM reads one row of every block at a time
    order_.clear();
    column_.clear();
    for (int block = 0; block < blocks; ++block) {
      order_.push_back(parents[static_cast<std::size_t>(block)] * k + row);
      column_.push_back(tokens[static_cast<std::size_t>(block * k + row)]);
    }
    runner.select(above.outputs, order_, state_);
    runner.embed(column_, embedded_);
    const HeadRows* const pair[] = {&embedded_, &state_};
    lstm_.front().step(runner, pair, level.lstm);
    const HeadRows* const parts[] = {&longer_, &level.lstm.output()};
    const std::span<const HeadRows* const> all(parts);
    runner.stack(row == 0 ? all.last(1) : all, states_);
    std::swap(states_, longer_);
  }
  order_.clear();  // longer_ has the rows in the order [k, blocks]
  for (int block = 0; block < blocks; ++block)
    for (int row = 0; row < k; ++row) order_.push_back(row * blocks + block);
  runner.select(longer_, order_, inputs_);
  run(runner, context, inputs_, level);
}

void FalconHead::logits(HeadRunner& runner, const HeadRows& outputs, HeadRows& to) {
  if (head_.parts.empty()) runner.logits(outputs, FinalNorm::kDone, to);
  else runner.linear(head_, {&outputs}, to);
}

}  // namespace speclab
