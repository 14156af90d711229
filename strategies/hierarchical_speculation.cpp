// Hierarchical speculation: three levels. A small draft model guesses a few tokens. The target reviews them
// with a sparse view of its own cache and adds one token. Reviews follow each other until the chain has
// gamma tokens. Then the target with its full cache verifies the chain.
//
// The middle level removes the cost of the long cache from most forwards, and the small model removes most
// forwards of the middle level. The small model also sees only the first and the last positions of its own
// cache. Its prompt is prefilled with full attention.
//
// A review is speculative sampling with the sparse target in the place of the target: a guess x ~ q is kept
// with probability min(1, p(x) / q(x)), otherwise a token is drawn from norm((p - q)+), where p is the row
// of the sparse target. So each token of the chain has the law p, given the tokens before it, whatever the
// small model guessed. The chain hands over this p as its q, and every exact rule stays exact.
//
// A guess that was not kept leaves a row in flight on the target's session. No later row attends to it. The
// verifying forward drops all rows of the reviews.
//
// Paper:       Sun et al. 2024, "TriForce" (arXiv 2404.11912), Section 4 and Algorithm 1. The middle level
//              there sees retrieved chunks of the cache ("keep": "retrieved"), and the small model's cache is
//              StreamingLLM (Xiao et al. 2024, arXiv 2309.17453). Here, keys keep their absolute positions,
//              so the text must fit into the context of the small model; longer texts are drafted by the
//              middle level alone.
// Draft cost:  one forward of the small model per guess, one sparse forward of the target per review.
// Loses when:  the context is short, so that attention takes little of a forward: the middle level then
//              costs as much as the target.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/on_target/sparse_cache.h"
#include "core/decoding/registry.h"
#include "core/decoding/rows/processors.h"

namespace speclab {
namespace {

// Rows that the reviews of one step may leave in flight. Every session has room for as many.
constexpr int kMostReviewed = 128;

struct Options {
  int gamma = 8;
  int inner_gamma = 2;
  DraftSampling draft;
  SparseCacheOptions cache;
  int draft_first = 4;
  int draft_last = 252;
  void fields(OptionVisitor& visit) {
    visit("gamma", gamma, Range<int>{1, 64}, "tokens of a chain for the target with the full cache");
    visit("inner_gamma", inner_gamma, Range<int>{0, 64},
          "guesses of the draft model for one review by the target with the sparse cache; 0: no guesses");
    draft.fields(visit);
    cache.fields(visit);
    visit("draft_first", draft_first, Range<int>{0, 1 << 28}, "first positions that the draft model sees");
    visit("draft_last", draft_last, Range<int>{0, 1 << 28}, "last positions that the draft model sees");
  }
};

class HierarchicalSpeculation final : public Strategy {
 public:
  HierarchicalSpeculation(const Options& options, const Resources& resources)
      : options_(options),
        resources_(resources),
        sparse_(options.cache, {}, resources, "hierarchical_speculation"),
        draft_view_(CacheView::ends(options.draft_first, options.draft_last)),
        caches_(static_cast<std::size_t>(resources.batch)),
        guesses_(static_cast<std::size_t>(options.inner_gamma)) {}

  TargetUse target_use() const override { return {.drafts = true, .exits = {}}; }

  void begin(const Sequence& sequence) override {
    caches_[static_cast<std::size_t>(sequence.slot)].begin(sequence, resources_);
    sparse_.begin(sequence);
  }

  // The sequences take turns, because their reviews happen at different times.
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      sequence_ = sequences[i];
      draft_ = drafts[i];
      session_ = &resources_.target_session(*sequence_);
      cache_ = &caches_[static_cast<std::size_t>(sequence_->slot)];
      const auto limit = static_cast<int>(std::min<std::int64_t>(
          {options_.gamma, sequence_->depth_limit, session_->capacity() - sequence_->position()}));
      if (limit <= 0) continue;
      sampling_ = options_.draft.over(sequence_->sampling);
      text_ = sequence_->tokens;
      last_ = -1;
      reviewed_ = 0;
      coins_ = 0;
      draft_->source = "hierarchy";
      sparse_.start_draft(*sequence_);
      while (draft_->tree.drafted() < limit) review(limit - draft_->tree.drafted());
    }
  }

 private:
  /// A coin of this step that no other decision uses. All decisions of a draft have coins of one purpose,
  /// numbered in the order in which they happen.
  Coins::Address coin() { return sequence_->draft_coin(++coins_); }

  /// The draft model extends the text by at most `count` tokens. The q of the i-th one is in guesses_[i].
  int guess(int count) {
    const ModelConfig& config = resources_.draft->config();
    Session& session = cache_->session();
    int guessed = 0;
    for (; guessed < count && static_cast<int>(text_.size()) <= session.capacity(); ++guessed) {
      cache_->catch_up(text_, static_cast<std::size_t>(sequence_->prompt_length), feed_);
      chain_after(-1, 0, feed_.size());
      const auto row = static_cast<std::int32_t>(feed_.size()) - 1;
      logits_.resize(std::max(logits_.size(), static_cast<std::size_t>(config.head_rows())));
      Feed feed{&session, feed_, parents_, {&row, 1}, logits_.data()};
      feed.view = &draft_view_;
      resources_.draft->forward({&feed, 1});
      cache_->keep(feed_);
      Distribution& q = guesses_[static_cast<std::size_t>(guessed)];
      if (!assign(q, 0, config, text_.size())) break;
      text_.push_back(drawn(q, text_.size()));
    }
    return guessed;
  }

  /// Adds one to `room` tokens to the draft: guesses that pass the review, and one token of the reviewer.
  void review(int room) {
    const std::size_t begin = text_.size();
    // Keeps one row free for each token that is still to come, so that the rows always fit. A forward that
    // reads out the attention has no guesses, so what is seen later does not depend on them.
    const int most = std::min({options_.inner_gamma, room - 1, kMostReviewed - reviewed_ - room});
    const int guessed = sparse_.reads_next(*sequence_) ? 0 : guess(most);
    const auto fed = static_cast<std::size_t>(guessed) + 1;
    const ModelConfig& config = resources_.target->config();
    chain_after(last_, reviewed_, fed);
    rows_.resize(fed);
    std::iota(rows_.begin(), rows_.end(), 0);
    logits_.resize(std::max(logits_.size(), fed * static_cast<std::size_t>(config.head_rows())));
    Feed feed{session_, TokenSpan(text_).subspan(begin - 1), parents_, rows_, logits_.data()};
    feed.continues = reviewed_ > 0;
    sparse_.apply(*sequence_, feed);
    resources_.target->forward({&feed, 1});
    int kept = 0;
    for (bool more = true; more; kept += more) {
      const std::size_t at = begin + static_cast<std::size_t>(kept);
      int index = Draft::kOneHot;
      Distribution& p = draft_->new_q(&index);
      const bool some = assign(p, kept, config, at);
      SPECLAB_CHECK(some, "a row of the target in which the processors ban all {} tokens", config.vocab);
      more = kept < guessed;
      const Token guess = more ? text_[at] : -1;
      const Token token =
          more ? judged(p, guesses_[static_cast<std::size_t>(kept)], guess, at) : drawn(p, at);
      more = token == guess;
      if (!more) {
        text_.resize(at);
        text_.push_back(token);
      }
      draft_->add(token, draft_->tree.drafted(), index,
                  p.one_hot() ? -1.0f : static_cast<float>(p.prob(token)));
    }
    last_ = reviewed_ + kept;
    reviewed_ += guessed + 1;
  }

  /// Draws the token at index `at` of the text.
  Token drawn(const Distribution& law, std::size_t at) {
    if (sequence_->coupled) return law.sample_coupled(sequence_->coins, static_cast<std::int64_t>(at));
    return law.sample(sequence_->coins, coin());
  }

  /// Tests a guess x ~ q for index `at` of the text. The result has the law p.
  Token judged(const Distribution& p, const Distribution& q, Token guess, std::size_t at) {
    const Coins& coins = sequence_->coins;
    if (sequence_->coupled) return drawn(p, at);
    if (coins.bernoulli(std::min(1.0, p.prob(guess) / q.prob(guess)), coin())) return guess;
    if (p.one_hot()) return p.argmax();
    p.probabilities(residual_);
    double left = 0;
    for (std::size_t x = 0; x < residual_.size(); ++x)
      left += residual_[x] = std::max(0.0, residual_[x] - q.prob(static_cast<Token>(x)));
    // Nothing is left only if p equals q up to rounding.
    return left > 0 ? static_cast<Token>(coins.categorical(residual_, coin())) : p.sample(coins, coin());
  }

  /// Makes the distribution of the token at index `at` of the text from row `row` of the logits. Returns
  /// false if the processors ban every token of a reduced vocabulary.
  bool assign(Distribution& law, int row, const ModelConfig& config, std::size_t at) {
    const auto columns = static_cast<std::size_t>(config.head_rows());
    std::span<const float> logits(logits_.data() + static_cast<std::size_t>(row) * columns, columns);
    if (sequence_->processors) {
      const std::size_t known = sequence_->tokens.size();
      processed_.resize(columns);
      sequence_->processors->apply(logits, config.head_ids, sequence_->tokens,
                                   TokenSpan(text_).subspan(known, at - known), processed_);
      logits = processed_;
      if (std::ranges::all_of(logits, [](float z) { return std::isinf(z) && z < 0; })) return false;
    }
    law.assign_logits(logits, sampling_, config.head_ids, config.vocab);
    return true;
  }

  /// Sets parents_ to those of a chain of `count` rows. Its first row is number `from` and follows row
  /// `parent`.
  void chain_after(int parent, int from, std::size_t count) {
    parents_.resize(count);
    std::iota(parents_.begin(), parents_.end(), from - 1);
    parents_[0] = parent;
  }

  Options options_;
  Resources resources_;
  SparseCache sparse_;                 // of the target's sessions
  CacheView draft_view_;               // of the draft model's
  std::vector<DraftCache> caches_;     // [batch]
  std::vector<Distribution> guesses_;  // [inner_gamma], the q of each guess
  // The step in progress of one sequence:
  const Sequence* sequence_ = nullptr;
  Draft* draft_ = nullptr;
  Session* session_ = nullptr;
  DraftCache* cache_ = nullptr;
  SamplingParams sampling_;
  std::vector<Token> text_;  // with the tokens drafted so far, and during a review with its guesses
  int last_ = -1;            // row in flight of the last token of the text but one; -1: it is committed
  int reviewed_ = 0;         // rows in flight
  int coins_ = 0;            // coins used so far
  std::vector<Token> feed_;
  std::vector<std::int32_t> parents_, rows_;
  std::vector<float> logits_, processed_;
  std::vector<double> residual_;
};

const RegisterStrategy<Options, HierarchicalSpeculation> registered{{
    .name = "hierarchical_speculation",
    .summary =
        "the target reviews a small model's guesses with a sparse cache, then itself with the full one",
    .paper = "Sun et al. 2024, TriForce",
    .draft_source =
        "the target with a sparse cache, and a small model with a sparse cache that drafts for it",
    .stop_rule = "fixed lengths of both levels",
    .verification = "chain",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "a small model with the target's vocabulary; nothing for layer skipping",
    .needs_draft = true,
}};

}  // namespace
}  // namespace speclab
