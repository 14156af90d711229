#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/model/net/session_life.h"

/// Random operations on a session. Rows are drafted with some of the layers, or with a view of a part of the
/// cache, and then verified with all layers and the full cache. The reference is a fresh prefill of the same
/// text, as in session_life.h.
namespace speclab::fixtures {

/// Every choice comes from the seed. In each step a random tree is drafted in one of five ways, then a
/// forward through all layers with the full cache verifies it, and a path of it may be committed.
class PartLife {
 public:
  PartLife(const std::string& numerics, std::size_t which, int threads, unsigned seed)
      : model_(life_model(numerics, which, threads)),
        one_(life_model(numerics, which, 1)),
        capacity_(std::min(96, model_->config().context)),
        random_(seed),
        session_(model_->open(capacity_, kScratch)) {
    for (std::size_t count = 1 + below(30); count > 0; --count) text_.push_back(token());
    session_->prefill(text_);
  }

  /// Runs one step. Returns an empty string, or what differed.
  std::string step() {
    draw_tree();
    const bool exits = model_->layers().size() > 1;
    switch (below(exits ? 5 : 2)) {
      case 0:
        if (!full_view()) return "a view of everything differs from the full cache";
        break;
      case 1:
        if (!part_of_cache()) return "a row with a view depends on other rows";
        break;
      case 2:
        if (!layer_skip()) return "a row of a layer skip depends on other rows";
        break;
      case 3:
        if (const std::string wrong = exits_of_rows(); !wrong.empty()) return wrong;
        finish();
        return "";
      default:
        if (const std::string wrong = early_exit(); !wrong.empty()) return wrong;
        finish();
        return "";
    }
    if (!verify({})) return "the forward behind a draft differs";
    finish();
    return "";
  }

 private:
  static constexpr int kScratch = 24;

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  std::size_t vocab() const { return static_cast<std::size_t>(model_->config().head_rows()); }
  Token token() { return static_cast<Token>(below(static_cast<std::size_t>(model_->config().vocab))); }

  void draw_tree() {
    const std::size_t n = 1 + below(8), kind = below(3);
    tokens_.clear();
    parents_.clear();
    for (std::size_t i = 0; i < n; ++i) {
      const auto before = static_cast<std::int32_t>(i) - 1;
      tokens_.push_back(token());
      parents_.push_back(kind == 0   ? before
                         : kind == 1 ? static_cast<std::int32_t>(below(i + 1)) - 1
                                     : std::max(-1, before - static_cast<std::int32_t>(below(3))));
    }
  }
  std::vector<int> path_to(int node) const {
    std::vector<int> path;
    for (; node >= 0; node = parents_[static_cast<std::size_t>(node)]) path.insert(path.begin(), node);
    return path;
  }

  /// Logits of all nodes, which are fed in up to three parts. [nodes, vocab]
  std::vector<float> feed(Session& session, TokenSpan tokens, std::span<const std::int32_t> parents,
                          LayerPart part, const CacheView* view, std::size_t cuts = 0) {
    std::vector<float> logits(tokens.size() * vocab());
    std::vector<std::int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    for (std::size_t begin = 0;; --cuts) {
      const std::size_t end = cuts == 0 ? tokens.size() : begin + below(tokens.size() - begin + 1);
      Feed feed{&session, tokens.subspan(begin, end - begin), parents.subspan(begin, end - begin),
                std::span(rows).first(end - begin), logits.data() + begin * vocab()};
      feed.continues = begin > 0;
      feed.layers = part;
      feed.view = view;
      session.model().forward({&feed, 1});
      if (cuts == 0) return logits;
      begin = end;
    }
  }
  std::vector<float> feed_tree(LayerPart part, const CacheView* view) {
    return feed(*session_, tokens_, parents_, part, view, below(3));
  }
  /// The path to a node alone, in a copy of the session: logits of the node.
  std::vector<float> alone(int node, LayerPart part, const CacheView* view) {
    const auto copy = one_->open(capacity_, kScratch);
    copy->prefill(text_);
    std::vector<Token> tokens;
    std::vector<std::int32_t> parents;
    for (const int at : path_to(node)) {
      parents.push_back(static_cast<std::int32_t>(tokens.size()) - 1);
      tokens.push_back(tokens_[static_cast<std::size_t>(at)]);
    }
    const auto logits = feed(*copy, tokens, parents, part, view);
    return {logits.end() - static_cast<std::ptrdiff_t>(vocab()), logits.end()};
  }
  /// Compares two random nodes with a fresh prefill of text and path on `model`, which may have only some of
  /// the layers.
  bool prefilled(const std::vector<float>& logits, const Model& model) {
    for (int check = 0; check < 2; ++check) {
      const std::size_t node = below(tokens_.size());
      std::vector<Token> sequence = text_;
      for (const int at : path_to(static_cast<int>(node)))
        sequence.push_back(tokens_[static_cast<std::size_t>(at)]);
      std::vector<float> expected(vocab());
      model.open(capacity_, 1 + static_cast<int>(below(30)))->prefill(sequence, expected.data());
      if (!same(expected, logits, node)) return false;
    }
    return true;
  }
  bool drafted_alone(const std::vector<float>& logits, LayerPart part, const CacheView* view) {
    const std::size_t node = below(tokens_.size());
    return same(alone(static_cast<int>(node), part, view), logits, node);
  }
  bool same(const std::vector<float>& expected, const std::vector<float>& logits, std::size_t node) const {
    return std::memcmp(expected.data(), logits.data() + node * vocab(), vocab() * sizeof(float)) == 0;
  }

  CacheView random_view(bool everything) {
    const auto committed = static_cast<int>(text_.size());
    if (below(2) == 0) {
      if (everything) return CacheView::ends(committed / 2, committed);
      return CacheView::ends(static_cast<int>(below(5)), static_cast<int>(below(text_.size() + 1)));
    }
    std::vector<std::int32_t> list;
    for (int position = 0; position < committed; ++position)
      if (everything || below(3) > 0) list.push_back(position);
    return CacheView::list(std::move(list));
  }
  CacheView draw_view(bool everything) {
    if (below(2) == 0) return random_view(everything);
    std::vector<CacheView> layers;
    for (std::size_t i = 0; i < model_->layers().size(); ++i) layers.push_back(random_view(everything));
    return CacheView::per_layer(std::move(layers));
  }

  bool full_view() {
    const CacheView view = draw_view(true);
    return prefilled(feed_tree({}, &view), *one_);
  }
  bool part_of_cache() {
    const CacheView view = draw_view(false);
    return drafted_alone(feed_tree({}, &view), {}, &view);
  }
  bool layer_skip() {
    std::vector<int> layers;
    for (const int layer : model_->layers())
      if (below(2) == 0) layers.push_back(layer);
    if (layers.empty()) layers.push_back(model_->layers()[0]);
    const CacheView view = draw_view(false);
    const CacheView* with = below(2) == 0 ? &view : nullptr;
    const LayerPart part = LayerPart::only(layers);
    return drafted_alone(feed_tree(part, with), part, with);
  }
  /// The layers before an exit do not depend on the layers after it. So the logits at the exit are those of a
  /// model that has only the layers before it.
  std::string early_exit() {
    const int exit = 1 + static_cast<int>(below(model_->layers().size() - 1));
    const auto logits = feed_tree(LayerPart::until(exit), nullptr);
    const std::span<const int> layers = one_->layers();
    const auto front = Model::with_layers(one_, {layers.begin(), layers.begin() + exit});
    if (!prefilled(logits, *front)) return "an early exit differs from a model of its layers";
    if (below(3) == 0) session_ = session_->fork();  // the hidden states go with it
    if (!verify(LayerPart::from(exit))) return "the rest of an early exit differs from a full forward";
    return "";
  }
  /// Later rows stop at earlier layers. Then the rows that stopped first go on, exit by exit, until all have
  /// stopped at the last one.
  std::string exits_of_rows() {
    const int layers = static_cast<int>(model_->layers().size());
    std::vector<int> exits;
    for (int exit = 1; exit < layers; ++exit)
      if (below(2) == 0) exits.push_back(exit);
    if (exits.empty()) exits.push_back(1 + static_cast<int>(below(static_cast<std::size_t>(layers) - 1)));
    const std::size_t n = tokens_.size();
    std::vector<std::size_t> first(exits.size());  // the first row that stops at this exit or before it
    for (std::size_t level = exits.size(), from = 0; level-- > 0;)
      first[level] = from, from += below(n + 1 - from);
    for (std::size_t level = exits.size(); level-- > 0;) {
      const std::size_t end = level > 0 ? first[level - 1] : n;
      if (end == first[level]) continue;
      Feed feed{session_.get(),
                TokenSpan(tokens_).subspan(first[level], end - first[level]),
                std::span(parents_).subspan(first[level], end - first[level]),
                {},
                nullptr};
      feed.continues = first[level] > 0;
      feed.layers = LayerPart::until(exits[level]);
      model_->forward({&feed, 1});
    }
    if (below(3) == 0) session_ = session_->fork();
    for (std::size_t level = 0; level + 1 < exits.size(); ++level) {
      if (first[level] == n) continue;
      std::vector<float> logits(vocab());
      const auto last = static_cast<std::int32_t>(n - first[level]) - 1;
      Feed feed{session_.get(),
                TokenSpan(tokens_).subspan(first[level]),
                std::span(parents_).subspan(first[level]),
                {&last, 1},
                logits.data()};
      feed.layers = LayerPart::between(exits[level], exits[level + 1]);
      model_->forward({&feed, 1});
      const std::span<const int> all = one_->layers();
      const auto front = Model::with_layers(one_, {all.begin(), all.begin() + exits[level + 1]});
      std::vector<Token> sequence = text_;
      for (const int at : path_to(static_cast<int>(n) - 1))
        sequence.push_back(tokens_[static_cast<std::size_t>(at)]);
      std::vector<float> expected(vocab());
      front->open(capacity_, kScratch)->prefill(sequence, expected.data());
      if (std::memcmp(expected.data(), logits.data(), vocab() * sizeof(float)) != 0)
        return "a row that went on to a later exit differs from a model of its layers";
    }
    if (!verify(LayerPart::from(exits.back())))
      return "the rest of several exits differs from a full forward";
    return "";
  }
  bool verify(LayerPart part) { return prefilled(feed(*session_, tokens_, parents_, part, nullptr), *one_); }

  void finish() {
    if (below(4) > 0) {
      const std::vector<int> path = path_to(static_cast<int>(below(tokens_.size())));
      session_->commit(path);
      for (const int node : path) text_.push_back(tokens_[static_cast<std::size_t>(node)]);
    }
    if (text_.size() + 10 > static_cast<std::size_t>(capacity_)) {
      text_.resize(1 + below(20));
      session_->rewind(static_cast<int>(text_.size()));
    }
  }

  std::shared_ptr<const Model> model_, one_;
  int capacity_;
  std::mt19937 random_;
  std::unique_ptr<Session> session_;
  std::vector<Token> text_, tokens_;
  std::vector<std::int32_t> parents_;
};

}  // namespace speclab::fixtures
