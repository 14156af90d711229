#include "core/model/net/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/model/net/transformer.h"

namespace speclab {

Session::Session(std::shared_ptr<const Model> model, int capacity, int scratch)
    : model_(std::move(model)), capacity_(capacity), scratch_(scratch) {
  const ModelConfig& c = model_->config();
  if (c.layers > 0) {
    kv_ = model_->backend().allocate_kv(static_cast<int>(model_->layers().size()), c.kv_heads, c.head_dim,
                                        capacity + scratch);
    ropes_ = model_->rope_tables(std::min(c.context, capacity + scratch), c.takes_long_divisors(capacity));
  }
  parents_.reserve(static_cast<std::size_t>(scratch));
  depths_.reserve(static_cast<std::size_t>(scratch));
  exits_.reserve(static_cast<std::size_t>(scratch));
  ran_.reserve(model_->layers().size());
}

void Session::check_room(std::int64_t tokens, int after) const {
  if (after + tokens <= capacity_) return;
  throw Error({"prompt", fmt::format("{} tokens for a sequence that already has {}", tokens, after),
               fmt::format("at most {} positions", capacity_),
               "Shorten the prompt or ask for fewer tokens."});
}

/// A prompt during its prefill.
struct Session::PromptRun {
  TokenSpan tokens;                   // empty if embeddings are given
  const float* embeddings = nullptr;  // [count, hidden]
  Memory memory = Memory::kHost;
  std::size_t count = 0;
  float* logits = nullptr;
  const PromptTaps* taps = nullptr;
};

void Session::prefill(TokenSpan tokens, float* logits, const PromptTaps* taps) {
  prefill({tokens, nullptr, Memory::kHost, tokens.size(), logits, taps});
}

void Session::prefill_embeddings(const float* embeddings, int n, Memory memory, float* logits,
                                 const PromptTaps* taps) {
  prefill({{}, embeddings, memory, static_cast<std::size_t>(n), logits, taps});
}

void Session::prefill(const PromptRun& run) {
  check_room(static_cast<std::int64_t>(run.count), length_);
  std::vector<std::int32_t> parents(std::min(run.count, static_cast<std::size_t>(scratch_)));
  std::iota(parents.begin(), parents.end(), -1);
  const PromptRows together = model_->backend().prompt_rows();
  const auto hidden = static_cast<std::size_t>(model_->config().hidden);
  const std::span<const int> layers = run.taps != nullptr ? run.taps->layers : std::span<const int>();
  std::vector<float>
      states;  // hidden states of the rows of one forward, layer by layer, [count, hidden] each
  std::vector<const float*> of_layer;  // where each layer's states begin
  std::vector<Tap> taps;               // taps of all feeds of the forward
  std::vector<Feed> feeds;
  for (std::size_t done = 0, count = 0; done < run.count; done += count) {
    // If many rows go through the matrix products together, attention takes them in chunks, and each chunk
    // sees the earlier ones.
    const std::size_t left = run.count - done;
    const bool prompt = together.most > 0 && left >= static_cast<std::size_t>(together.least);
    count = std::min(left, prompt ? static_cast<std::size_t>(together.most) : parents.size());
    feeds.clear();
    taps.clear();
    // Feeds point into this vector, so its memory must not move later.
    taps.reserve(layers.size() * ((count + parents.size() - 1) / parents.size()));
    states.resize(std::max(states.size(), layers.size() * count * hidden));
    std::int32_t last = 0;
    for (std::size_t at = 0; at < count; at += parents.size()) {
      const std::size_t chunk = std::min(parents.size(), count - at);
      Feed feed;
      feed.session = this;
      feed.parents = std::span(parents).first(chunk);
      if (run.embeddings == nullptr) feed.tokens = run.tokens.subspan(done + at, chunk);
      else feed.embeddings = run.embeddings + (done + at) * hidden;
      feed.embeddings_in = run.memory;
      feed.logits = run.logits;
      feed.after = static_cast<int>(at);
      for (std::size_t i = 0; i < layers.size(); ++i)
        taps.push_back({layers[i], states.data() + (i * count + at) * hidden, {}, Memory::kHost});
      feed.taps = std::span<const Tap>(taps).last(layers.size());
      feeds.push_back(feed);
      last = static_cast<std::int32_t>(chunk) - 1;
    }
    if (count == left && run.logits != nullptr) feeds.back().rows = {&last, 1};
    if (prompt) model_->forward_prompt(feeds);
    else model_->forward(feeds);
    length_ += static_cast<int>(count);
    drop_flight();
    if (run.taps == nullptr) continue;
    of_layer.clear();
    for (std::size_t i = 0; i < layers.size(); ++i) of_layer.push_back(states.data() + i * count * hidden);
    run.taps->take({static_cast<int>(done), static_cast<int>(count), of_layer});
  }
}

void Session::forward(TokenSpan tokens, std::span<const std::int32_t> parents,
                      std::span<const std::int32_t> rows, float* logits, std::span<const Tap> taps) {
  const Feed feed{this, tokens, parents, rows, logits, taps};
  model_->forward({&feed, 1});
}

void Session::fetch_states(const float* states, std::span<const std::int32_t> rows, float* out) {
  if (rows.empty()) return;
  Backend& device = model_->backend();
  const int n = static_cast<int>(rows.size()), hidden = model_->config().hidden;
  const std::size_t size = rows.size() * static_cast<std::size_t>(hidden);
  const std::int32_t* staged = device.stage(rows, fetched_rows_);
  float* fetched = device.host_memory() ? out : device.room(fetched_, size);
  device.copy_rows(states, staged, n, hidden, fetched);
  if (fetched != out) device.download(fetched, size * sizeof(float), out);
  work_.hidden_bytes += static_cast<double>(size * sizeof(float));
}

void Session::commit(std::span<const int> path) {
  SPECLAB_CHECK(length_ + static_cast<int>(path.size()) <= capacity_, "{} + {} rows, room for {}", length_,
                path.size(), capacity_);
  SPECLAB_CHECK(path.empty() || ran_.size() == model_->layers().size(),
                "a commit of rows that ran through {} of {} layers", ran_.size(), model_->layers().size());
  moved_from_.resize(path.size());
  moved_to_.resize(path.size());
  for (std::size_t i = 0; i < path.size(); ++i) {
    const int node = path[i];
    SPECLAB_CHECK(node >= 0 && node < in_flight(), "node {} of {} in flight", node, in_flight());
    SPECLAB_CHECK(parents_[static_cast<std::size_t>(node)] == (i == 0 ? -1 : path[i - 1]),
                  "node {} does not follow its parent", node);
    moved_from_[i] = length_ + node;
    moved_to_[i] = length_ + static_cast<int>(i);
  }
  if (kv_.data && moved_from_ != moved_to_) model_->backend().move_slots(kv_, moved_from_, moved_to_);
  length_ += static_cast<int>(path.size());
  drop_flight();
}

int Session::fly(std::span<const std::int32_t> parents, const Flight& flight) {
  const bool rest = flight.part.rest();
  const int first = rest ? check_rest(parents, flight) : 0;
  if (!rest && !flight.continues) drop_flight();
  if (!rest && in_flight() > 0) check_continued(flight);
  const int earlier = rest ? first : in_flight(), end = earlier + static_cast<int>(parents.size());
  SPECLAB_CHECK(end <= scratch_, "{} rows in flight, room for {}", end, scratch_);
  if (flight.view != nullptr)
    flight.view->check(static_cast<int>(model_->layers().size()), length_ + flight.after);
  for (int node = in_flight(); node < end; ++node) {
    const int parent = parents[static_cast<std::size_t>(node - earlier)];
    SPECLAB_CHECK(parent < node && parent >= -1, "node {} has parent {}", node, parent);
  }
  for (int node = in_flight(); node < end; ++node) {  // nothing is refused from here on
    const int parent = parents[static_cast<std::size_t>(node - earlier)];
    parents_.push_back(parent);
    depths_.push_back(parent < 0 ? 0 : depths_[static_cast<std::size_t>(parent)] + 1);
  }
  if (rest && !flight.part.early_exit()) ran_ = model_->all_;
  else ran_.assign(flight.run.begin(), flight.run.end());
  exits_.resize(static_cast<std::size_t>(earlier));
  exits_.resize(static_cast<std::size_t>(end), flight.part.end());
  viewed_ = viewed_ || flight.view != nullptr;
  work_ += model_->work(count(earlier, end, flight));
  if (flight.after > 0) {  // the first feed of the forward has counted the pass over the weights
    const Work pass = model_->work(0, 0, 0, 0, 0);
    work_.calls -= pass.calls;
    work_.weight_bytes -= pass.weight_bytes;
  }
  return earlier;
}

void Session::check_continued(const Flight& flight) const {
  const int exit = flight.part.end();
  const bool fits =
      exit > 0 ? exits_.back() >= exit : exits_.back() == 0 && std::ranges::equal(flight.run, ran_);
  SPECLAB_CHECK(fits, "new rows run {} layers (exit {}), but the rows in flight ran {} (exit {})",
                flight.run.size(), exit, ran_.size(), exits_.back());
}

int Session::check_rest(std::span<const std::int32_t> parents, const Flight& flight) const {
  const auto first = std::ranges::find(exits_, flight.part.begin());
  const auto stopped = static_cast<std::size_t>(exits_.end() - first), before = exits_.size() - stopped;
  SPECLAB_CHECK(stopped > 0 && exits_.back() == flight.part.begin() && !flight.continues && flight.after == 0,
                "a rest from layer {} on, but the last row in flight stopped at layer {}",
                flight.part.begin(), exits_.empty() ? 0 : exits_.back());
  SPECLAB_CHECK(before == 0 || (flight.part.early_exit() && exits_[before - 1] >= flight.part.end()),
                "a rest from layer {} to {}, but a row before it stopped at layer {}", flight.part.begin(),
                flight.part.end(), exits_[before - 1]);
  SPECLAB_CHECK(parents.size() == stopped && std::ranges::equal(parents, std::span(parents_).last(stopped)),
                "{} rows in flight stopped at layer {}, but their rest is fed as a different tree of {}",
                stopped, flight.part.begin(), parents.size());
  SPECLAB_CHECK(!viewed_, "a rest of {} rows that ran with a CacheView", in_flight());
  return static_cast<int>(before);
}

// Counts the work of the rows in flight [begin, end). Two kinds of keys are read from the cache: the
// committed keys that a root sees (no other row sees more of them), and the rows in flight before `begin`.
Model::Ran Session::count(int begin, int end, const Flight& flight) const {
  static const CacheView everything;
  const ModelConfig& c = model_->config();
  const int committed = length_ + flight.after;
  Model::Ran ran{flight.run, !flight.part.rest(), end - begin, flight.wanted};
  const bool alike = c.windows.empty() && (flight.view == nullptr || flight.view->same_in_all_layers());
  const std::size_t different = alike ? std::min<std::size_t>(flight.run.size(), 1) : flight.run.size();
  std::int64_t cached = 0, layer_keys = 0;
  for (std::size_t i = 0; i < different; ++i) {
    const CacheView& view = flight.view == nullptr ? everything : flight.view->of(flight.run[i]);
    const int window = c.window(model_->layers()[static_cast<std::size_t>(flight.run[i])]);
    const KeysOfRow first = keys_of_row(view, committed, committed, window);
    const int seen = first.count() - 1 + begin;
    cached += window > 0 ? std::min(seen, window - 1) : seen;
    for (int node = begin; node < end; ++node)
      layer_keys +=
          keys_of_row(view, committed, committed + depths_[static_cast<std::size_t>(node)], window).count();
  }
  const auto times = static_cast<std::int64_t>(alike ? flight.run.size() : 1);
  ran.cached = cached * times;
  ran.layer_keys = layer_keys * times;
  const int most = flight.view == nullptr ? committed : flight.view->most(committed);
  for (int node = begin; node < end; ++node) ran.keys += most + depths_[static_cast<std::size_t>(node)] + 1;
  return ran;
}

void Session::copy_exit_rows(const Session& from) {
  Backend& device = model_->backend();
  const auto count = static_cast<std::size_t>(from.in_flight());
  const int hidden = model_->config().hidden;
  std::vector<std::int32_t> rows(count);
  std::iota(rows.begin(), rows.end(), 0);
  Buffer<std::int32_t> staged;
  float* to = device.room(exit_rows_, static_cast<std::size_t>(scratch_) * static_cast<std::size_t>(hidden));
  device.copy_rows(from.exit_rows_.data(), device.stage(rows, staged), from.in_flight(), hidden, to);
  device.submit();  // before `staged` is destroyed
}

void Session::drop_flight() {
  parents_.clear();
  depths_.clear();
  ran_.clear();
  exits_.clear();
  viewed_ = false;
}

void Session::follow(std::span<const std::int32_t> parents, bool continues, int wanted) {
  fly(parents, {model_->all_, wanted, continues});
}

void Session::follow_commit(int count) {
  SPECLAB_CHECK(count >= 0 && count <= in_flight() && length_ + count <= capacity_,
                "{} + {} of {} rows, room for {}", length_, count, in_flight(), capacity_);
  length_ += count;
  drop_flight();
}

void Session::rewind(int length) {
  SPECLAB_CHECK(length >= 0 && length <= length_, "rewind to {} of {}", length, length_);
  length_ = length;
  drop_flight();
}

std::unique_ptr<Session> Session::fork() const {
  std::unique_ptr<Session> copy(new Session(model_, capacity_, scratch_));
  if (kv_.data) model_->backend().copy_kv(kv_, length_ + in_flight(), copy->kv_);
  copy->length_ = length_;
  copy->parents_ = parents_;
  copy->depths_ = depths_;
  copy->ran_ = ran_;
  copy->exits_ = exits_;
  copy->viewed_ = viewed_;
  if (!exits_.empty() && exits_.back() > 0) copy->copy_exit_rows(*this);
  return copy;
}

void Session::copy(const Session& other) {
  SPECLAB_CHECK(model_->same_function_as(*other.model_), "a session of {} copied from one of {}",
                model_->name(), other.model_->name());
  const ModelConfig& c = model_->config();
  SPECLAB_CHECK(
      c.takes_long_divisors(capacity_) == c.takes_long_divisors(other.capacity_),
      "a session of {} positions copied into one of {}, which rotates its keys differently (LongRoPE)",
      other.capacity_, capacity_);
  check_room(other.length_, 0);
  if (kv_.data) model_->backend().copy_kv(other.kv_, other.length_, kv_);
  length_ = other.length_;
  drop_flight();
}

}  // namespace speclab
