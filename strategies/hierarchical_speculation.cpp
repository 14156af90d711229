// Hierarchical speculation: three levels. A small draft model guesses a few tokens. The target reviews them
// with a sparse view of its own cache and adds one token. Reviews follow each other until the chain has
// gamma tokens. Then the target with its full cache verifies the chain.
//
// The middle level removes the cost of the long cache from most forwards, and the small model removes most
// forwards of the middle level. The small model also sees only the first and the last positions of its own
// cache. Its prompt is prefilled with full attention.
//
// A review is speculative sampling with the sparse target in the place of the target: a guess x ~ q is kept
// with probability min(1, p(x) / q(x)), otherwise a token is drawn from norm((p - q)+), where p is the row of
// the sparse target. So each token of the chain has the distribution p, given the tokens before it, whatever
// the small model guessed. The chain hands over this p as its q, and every exact rule stays exact.
//
// A guess that was not kept leaves a row in flight on the target's session. No later row attends to it. The
// verifying forward drops all rows of the reviews.
//
// With "budget": "auto" both lengths are upper limits. Before each step the strategy chooses the length of
// the chain, perhaps 0, that gives the most tokens per time, and before each review the number of guesses
// with which the rest of the chain takes the least time. The times of all three levels come from the table of
// costs: a sparse forward is faster than a full one by the time of the positions that it does not see. How
// often the tokens of each level pass is learned from the text so far. The length is chosen before a token of
// the step is drawn. A number of guesses may depend on earlier reviews of the step, because it does not
// change the distribution of the chain.
//
// Paper:       Sun et al. 2024, "TriForce" (arXiv 2404.11912), Section 4 and Algorithm 1. The middle level
//              there sees retrieved chunks of the cache ("keep": "retrieved"), and the small model's cache is
//              StreamingLLM (Xiao et al. 2024, arXiv 2309.17453). Here, keys keep their absolute positions,
//              so the text must fit into the context of the small model; longer texts are drafted by the
//              middle level alone.
// Draft cost:  one forward of the small model per guess, one sparse forward of the target per review.
// Loses when:  the context is short, so that attention takes little of a forward: the middle level then
//              costs as much as the target. With a budget the drafts then become shorter, down to none.

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/budget/own_draft_costs.h"
#include "core/decoding/budget/review_budget.h"
#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/on_target/sparse_cache.h"
#include "core/decoding/registry.h"
#include "core/decoding/rows/processors.h"

namespace speclab {
namespace {

// Rows that the reviews of one step may leave in flight. Every session has room for as many.
constexpr int kMostReviewed = 128;

struct HierarchicalSpeculationOptions {
  int gamma = 8;
  int inner_gamma = 2;
  DraftSampling draft;
  SparseCacheOptions cache;
  int draft_first = 4;
  int draft_last = 252;
  BudgetOptions budget;
  void fields(OptionVisitor& visit) {
    visit("gamma", gamma, Range<int>{1, 64}, "tokens of a chain for the target with the full cache");
    visit("inner_gamma", inner_gamma, Range<int>{0, 64},
          "guesses of the draft model for one review by the target with the sparse cache; 0: no guesses");
    draft.fields(visit);
    cache.fields(visit);
    visit("draft_first", draft_first, Range<int>{0, 1 << 28}, "first positions that the draft model sees");
    visit("draft_last", draft_last, Range<int>{0, 1 << 28}, "last positions that the draft model sees");
    budget.fields(visit);
  }
};

/// What one sequence has learned, for "budget": "auto".
class HierarchyBudget {
 public:
  /// `most_seen`: the most positions that the sparse cache shows.
  HierarchyBudget(const HierarchicalSpeculationOptions& options, const Resources& resources,
                  std::int64_t most_seen)
      : most_guesses_(options.inner_gamma),
        reads_(options.cache.keep == KeepMiddle::none ? 0 : 1.0 / options.cache.refresh),
        costs_(resources.costs,
               {.layers = static_cast<int>(resources.target->layers().size()),
                .all_layers = static_cast<int>(resources.target->layers().size()),
                .most_seen = most_seen,
                .most_rows = options.inner_gamma + 1},
               options.gamma),
        chain_(costs_.table(), TreeShape::chain(options.gamma), {}),
        reviews_(options.gamma),
        level_ns_(static_cast<std::size_t>(options.gamma)) {
    of_reviews_.draft_ns = resources.costs->draft_ns;
  }
  void begin() {
    chain_.begin();
    reviews_.begin();
  }
  /// Chooses the length of the chain, at most `most` tokens; 0: nothing is drafted. `committed`: positions in
  /// the cache. `behind`: see ReviewBudget::plan(); negative: the text exceeds the draft model's context.
  int choose(int most, std::int64_t committed, int behind) {
    costs_.at(committed);
    const StepCosts& costs = *costs_.table();
    of_reviews_.target_ns = costs.draft_ns;  // the sparse target verifies guesses
    reviews_.plan(of_reviews_, behind, behind < 0 ? 0 : most_guesses_);
    for (std::size_t i = 0; i < level_ns_.size(); ++i) {
      const int depth = static_cast<int>(i) + 1;
      level_ns_[i] = reviews_.chain_ns(depth) - reviews_.chain_ns(depth - 1);
    }
    // Now and then the first forward sees the whole cache, to read out the attention.
    level_ns_[0] += reads_ * (costs.target(1) - costs.draft(1));
    chain_.set_level_times(level_ns_);
    return chain_.choose(most);
  }
  /// Chooses the number of guesses for a review of a chain that still lacks `tokens` tokens.
  int guesses(int tokens) { return reviews_.guesses(tokens); }
  void reviewed(int guessed, int kept) { reviews_.reviewed(guessed, kept); }
  void verified(int drafted, int accepted) { chain_.observe_chain(drafted, accepted); }

 private:
  int most_guesses_;
  double reads_;  // share of the drafts that read out the attention
  OwnDraftCosts costs_;
  ShapeBudget chain_;
  ReviewBudget reviews_;
  StepCosts of_reviews_;          // target_ns: of a review, draft_ns: of the draft model
  std::vector<double> level_ns_;  // [gamma], expected time of the i-th token of a chain
};

class HierarchicalSpeculation final : public Strategy {
 public:
  HierarchicalSpeculation(const HierarchicalSpeculationOptions& options, const Resources& resources)
      : options_(options),
        resources_(resources),
        sparse_(options.cache, {}, resources, "hierarchical_speculation"),
        draft_view_(CacheView::ends(options.draft_first, options.draft_last)),
        caches_(static_cast<std::size_t>(resources.batch)),
        guesses_(static_cast<std::size_t>(options.inner_gamma)) {
    if (!options.budget.automatic()) return;
    require_layer_costs(resources.costs.get(), "hierarchical_speculation");
    if (options.inner_gamma > 0) require_draft_costs(resources.costs.get(), "hierarchical_speculation");
    for (int i = 0; i < resources.batch; ++i)
      budgets_.push_back(std::make_unique<HierarchyBudget>(options, resources, sparse_.most_seen()));
  }

  TargetUse target_use() const override { return {.drafts = true, .exits = {}}; }

  void begin(const Sequence& sequence) override {
    caches_[static_cast<std::size_t>(sequence.slot)].begin(sequence, resources_);
    sparse_.begin(sequence);
    if (HierarchyBudget* budget = budget_of(sequence)) budget->begin();
  }

  // The sequences take turns, because their reviews happen at different times.
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      sequence_ = sequences[i];
      draft_ = drafts[i];
      session_ = &resources_.target_session(*sequence_);
      cache_ = &caches_[static_cast<std::size_t>(sequence_->slot)];
      auto limit = static_cast<int>(std::min<std::int64_t>(
          {options_.gamma, sequence_->depth_limit, session_->capacity() - sequence_->position()}));
      budget_ = budget_of(*sequence_);
      if (limit > 0 && budget_ != nullptr) {
        const int behind = cache_->room(*sequence_) > 0 ? cache_->behind(*sequence_) : -1;
        limit = budget_->choose(limit, sequence_->position(), behind);
      }
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

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const int drafted = outcomes[i].draft->tree.drafted();
      if (HierarchyBudget* budget = budget_of(*sequences[i]); budget != nullptr && drafted > 0)
        budget->verified(drafted, static_cast<int>(outcomes[i].acceptance->path.size()));
    }
  }

 private:
  /// Null without a budget.
  HierarchyBudget* budget_of(const Sequence& sequence) {
    return budgets_.empty() ? nullptr : budgets_[static_cast<std::size_t>(sequence.slot)].get();
  }
  /// A coin of this step that no other decision uses. All decisions of a draft have coins of one purpose,
  /// numbered in the order in which they happen.
  Coins::Address coin() { return sequence_->draft_coin(++coins_); }

  /// The draft model extends the text by at most `count` tokens; token i (from 0) has the q in guesses_[i].
  /// Returns the number of tokens.
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
    int guessed = 0;
    if (most > 0 && !sparse_.reads_next(*sequence_))  // otherwise guesses() must not spend a trial
      guessed = guess(budget_ != nullptr ? std::min(most, budget_->guesses(room)) : most);
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
    if (budget_ != nullptr) budget_->reviewed(guessed, kept);
  }

  /// Draws the token at index `at` of the text.
  Token drawn(const Distribution& law, std::size_t at) {
    if (sequence_->coupled) return law.sample_coupled(sequence_->coins, static_cast<std::int64_t>(at));
    return law.sample(sequence_->coins, coin());
  }

  /// Tests a guess x ~ q for index `at` of the text. The result has the distribution p.
  Token judged(const Distribution& p, const Distribution& q, Token guess, std::size_t at) {
    const Coins& coins = sequence_->coins;
    if (sequence_->coupled) return drawn(p, at);
    if (coins.bernoulli(std::min(1.0, p.prob(guess) / q.prob(guess)), coin())) return guess;
    if (p.one_hot()) return p.argmax();
    p.probabilities(residual_);
    double left = 0;
    for (std::size_t x = 0; x < residual_.size(); ++x)
      left += residual_[x] = std::max(0.0, residual_[x] - q.prob(static_cast<Token>(x)));
    // (p - q)+ is zero everywhere only if p equals q up to rounding.
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

  HierarchicalSpeculationOptions options_;
  Resources resources_;
  SparseCache sparse_;                                     // of the target's sessions
  CacheView draft_view_;                                   // of the draft model's
  std::vector<DraftCache> caches_;                         // [batch]
  std::vector<Distribution> guesses_;                      // [inner_gamma], the q of each guess
  std::vector<std::unique_ptr<HierarchyBudget>> budgets_;  // [batch]; empty without a budget
  // The step in progress of one sequence:
  const Sequence* sequence_ = nullptr;
  Draft* draft_ = nullptr;
  Session* session_ = nullptr;
  DraftCache* cache_ = nullptr;
  HierarchyBudget* budget_ = nullptr;  // null without a budget
  SamplingParams sampling_;
  std::vector<Token> text_;  // with the tokens drafted so far, and during a review with its guesses
  int last_ = -1;            // row in flight of the text's second last token; -1: this token is committed
  int reviewed_ = 0;         // rows in flight
  int coins_ = 0;            // coins used so far
  std::vector<Token> feed_;
  std::vector<std::int32_t> parents_, rows_;
  std::vector<float> logits_, processed_;
  std::vector<double> residual_;
};

const RegisterStrategy<HierarchicalSpeculationOptions, HierarchicalSpeculation> registered{{
    .name = "hierarchical_speculation",
    .summary =
        "the target reviews a small model's guesses with a sparse cache, then verifies with the full one",
    .paper = "Sun et al. 2024, TriForce",
    .draft_source =
        "the target with a sparse cache, and a small model with a sparse cache that drafts for it",
    .stop_rule = "budget; lengths of both levels",
    .verification = "chain",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "a small model with the target's vocabulary; nothing for layer skipping",
    .needs_draft = true,
    .drafts_with_target = true,
}};

}  // namespace
}  // namespace speclab
