// Cascade speculative drafting (CS Drafting): several drafts work together on one chain. Their list goes from
// the largest to the smallest. Unless `max_gram` is false, the last one is the max-gram, which copies what
// followed the longest ending of the text that occurred before.
//
// Vertical cascade: a draft does not generate token by token. It reviews a chain that the smaller drafts
// made, in one forward, and adds one token of its own. Horizontal cascade: the first tokens of a chain come
// from a larger draft, later tokens from smaller ones, because later tokens are accepted less often. The
// matrix K holds the lengths. With drafts numbered from 0, K[0][j] tokens of the chain for the target come
// from draft j, and K[i + 1][j] tokens of the chain that draft i reviews come from draft j. If a draft has
// fewer tokens, the drafts after it may add the missing ones.
//
// A review by a draft is greedy: the draft keeps the tokens before the first one that is not its best token.
// With `inner_lenience` above 1 it also keeps a token x with p(x) > q(x) / inner_lenience. p(x) is the
// probability that the reviewing draft gives x. q(x) is the probability that x got from the last draft which
// proposed or kept it (1 for a copy that no draft has reviewed). The target is never lenient: it verifies the
// chain with the rule of the case. No token is drawn at random. So the chain is a function of the text, every
// token is one-hot, and every exact rule stays exact at every temperature.
//
// With "budget": "auto" the numbers of K are upper limits. Before each chain, for the target and for each
// review, the strategy chooses which drafts hand in tokens and how many: as many as give the most tokens per
// time, by the measured times of all models and by how often tokens of each draft passed so far. This may be
// nothing, copies alone, or a draft that generates token by token without a review.
//
// Paper:       Chen et al. 2023, "Cascade Speculative Drafting for Even Faster LLM Inference" (arXiv
//              2312.11462), Algorithm 1. Two differences: a chain is never longer than K says (there, the
//              last review may add a few more tokens), and the max-gram drafts nothing where nothing matches
//              (there, a table of bigrams goes on).
// Draft cost:  one forward of a draft for each of its reviews. `speclab theory --alpha2` has the expected
//              speedup (EWIF) of both cascades.
// Loses when:  the smaller draft is not much cheaper than the larger one, or its tokens do not pass the
//              review: each review then costs a forward and gives one token, as a plain chain does. With a
//              budget such drafts are left out.

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/decoding/budget/series_budget.h"
#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/registry.h"
#include "core/decoding/rows/processors.h"

namespace speclab {
namespace {

constexpr int kMostModels = 3;  // models; a draft of the record has at most four sources
constexpr int kMostTokens = 64;

/// The names that the record gives to the parts of a chain. A name says which draft of the list handed the
/// part to the target.
constexpr std::string_view kDraftNames[kMostModels] = {"draft 1", "draft 2", "draft 3"};
constexpr std::string_view kMaxGram = "max_gram";

struct CascadeOptions {
  std::vector<int> k;
  bool max_gram = true;
  double inner_lenience = 1;
  BudgetOptions budget;
  void fields(OptionVisitor& visit) {
    visit(
        "k", k, Range<int>{0, kMostTokens},
        "the matrix K, row by row, [n x n] for n drafts, max-gram included; zeros below the diagonal. Row 0: "
        "tokens from each draft in the chain for the target; row i: those in the chain that the i-th draft "
        "reviews. "
        "Empty: 4 on and above the diagonal");
    visit("max_gram", max_gram, "add the max-gram as the last draft");
    visit("inner_lenience", inner_lenience, Range<double>{1, 1000},
          "a draft that reviews keeps its best token, and also a token x with p(x) > q(x) / inner_lenience; "
          "1: only its best token. The target is not affected");
    budget.fields(visit);
  }
};

/// Checks K for `n` drafts.
std::vector<int> checked(std::vector<int> k, int n) {
  const auto size = static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
  const bool given = !k.empty();
  if (!given) k.assign(size, 4);
  if (k.size() != size) {
    throw Error({"cascade: k", fmt::format("{} numbers", k.size()),
                 fmt::format("{0} x {0} = {1} numbers for {0} drafts, max-gram included", n, size),
                 "Write K row by row, with zeros below the diagonal, or set max_gram to false."});
  }
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) {
      int& below = k[static_cast<std::size_t>(i * n + j)];
      if (given && below != 0) {
        throw Error({fmt::format("cascade: k: row {}, column {}", i, j), std::to_string(below),
                     "0, because a draft is reviewed by larger drafts only",
                     "Order the drafts from the largest to the smallest."});
      }
      below = 0;
    }
  }
  const int first = std::accumulate(k.begin(), k.begin() + n, 0);
  if (first < 1 || first > kMostTokens) {
    throw Error({"cascade: k: sum of row 0", std::to_string(first),
                 fmt::format("1 to {}, the length of the chain for the target", kMostTokens), ""});
  }
  return k;
}

/// The longest ending of a text that occurred before: its length, and the index of the token that followed
/// it. If it occurred several times, the first occurrence counts. The length is 0 if there is none.
struct MaxGram {
  std::size_t length = 0, follows = 0;
};
/// The time grows with the length of the text times the length of the ending.
MaxGram find_max_gram(TokenSpan text) {
  MaxGram longest;
  for (std::size_t end = 1; end < text.size(); ++end) {  // text[end - 1] is the last token of an occurrence
    std::size_t length = 0;
    while (length < end && text[end - 1 - length] == text[text.size() - 1 - length]) ++length;
    if (length > longest.length) longest = {length, end};
  }
  return longest;
}

/// Copies at most `count` tokens that followed the longest ending of `text` that occurred before.
std::size_t copy_max_gram(TokenSpan text, std::size_t count, std::vector<Token>& out) {
  const MaxGram found = find_max_gram(text);
  if (found.length == 0) return 0;
  const std::size_t copied = std::min(count, text.size() - found.follows);
  for (std::size_t i = 0; i < copied; ++i) out.push_back(text[found.follows + i]);
  return copied;
}

class Cascade final : public Strategy {
 public:
  Cascade(const CascadeOptions& options, const Resources& resources)
      : options_(options), models_(static_cast<int>(resources.drafts.size())) {
    n_ = models_ + (options_.max_gram ? 1 : 0);
    k_ = checked(options_.k, n_);
    for (std::size_t i = 0; i < resources.drafts.size(); ++i) {
      drafts_.push_back({resources.with_draft(i), {}});
      drafts_.back().caches.resize(static_cast<std::size_t>(resources.batch));
    }
    if (options_.budget.automatic()) add_budgets(resources);
  }

  void begin(const Sequence& sequence) override {
    for (Level& draft : drafts_)
      draft.caches[static_cast<std::size_t>(sequence.slot)].begin(sequence, draft.resources);
    if (budgets_.empty()) return;
    Budgets& budgets = budgets_of(sequence);
    for (SeriesBudget& row : budgets.rows) row.begin();
    for (TokenTime& time : budgets.times) time.begin();
  }

  // The sequences take turns, because their reviews happen at different times.
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      sequence_ = sequences[i];
      text_ = sequence_->tokens;
      q_.assign(text_.size(), 1);
      from_.assign(text_.size(), 0);
      spent_ns_ = 0;
      Draft& draft = *drafts[i];
      draft_ = &draft;
      collect(0, static_cast<std::size_t>(std::max(sequence_->depth_limit, 0)), &draft);
      const std::size_t known = sequence_->tokens.size();
      for (std::size_t at = known; at < text_.size(); ++at)
        draft.add(text_[at], static_cast<int>(at - known), Draft::kOneHot);
      if (!budgets_.empty())
        budgets_of(*sequence_)
            .drafted.assign(from_.begin() + static_cast<std::ptrdiff_t>(known), from_.end());
      if (draft.contributions.empty()) continue;
      draft.source = draft.contributions.size() > 1 ? "cascade" : draft.contributions.front().source;
      if (draft.contributions.size() == 1) draft.contributions.clear();
    }
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    if (budgets_.empty()) return;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Budgets& budgets = budgets_of(*sequences[i]);
      learn(budgets.rows[0], 0, budgets.drafted, outcomes[i].acceptance->path.size());
    }
  }

 private:
  struct Level {
    Resources resources;             // with this model as the only draft
    std::vector<DraftCache> caches;  // [batch]
  };

  /// What one sequence has learned, for "budget": "auto".
  struct Budgets {
    std::vector<SeriesBudget> rows;  // [n], one for each row of K that has sources
    std::vector<TokenTime> times;    // [n], time of a token of each draft, including its smaller drafts
    std::vector<int> drafted;        // the draft that handed in each token of the last chain for the target
  };
  Budgets& budgets_of(const Sequence& sequence) { return budgets_[static_cast<std::size_t>(sequence.slot)]; }

  void add_budgets(const Resources& resources) {
    verifiers_.push_back(resources.costs);
    Budgets budgets;
    for (int i = 0; i < models_; ++i) {
      const Resources& own = drafts_[static_cast<std::size_t>(i)].resources;
      require_draft_costs(own.costs.get(), "cascade");
      verifiers_.push_back(
          std::make_shared<const StepCosts>(StepCosts{.target_ns = own.costs->draft_ns}));  // it reviews
      budgets.times.emplace_back(own.costs->draft(1));
    }
    if (options_.max_gram) budgets.times.emplace_back(0);
    for (int row = 0; row < n_; ++row)
      budgets.rows.emplace_back(std::span(k_).subspan(static_cast<std::size_t>(row * n_ + row),
                                                      static_cast<std::size_t>(n_ - row)));
    budgets_.assign(static_cast<std::size_t>(resources.batch), budgets);
    token_ns_.resize(static_cast<std::size_t>(n_));
  }

  // Chooses how many tokens of each draft the chain of a row has. `behind`: tokens that the reviewing draft
  // has missed.
  void plan(int row, std::size_t limit, int behind) {
    Budgets& budgets = budgets_of(*sequence_);
    for (std::size_t i = 0; i < token_ns_.size(); ++i) token_ns_[i] = budgets.times[i].mean();
    const auto first = static_cast<std::size_t>(row);
    const int evidence = options_.max_gram ? evidence_of_match(static_cast<int>(find_max_gram(text_).length))
                                           : SeriesBudget::kEvidence - 1;
    budgets.rows[first].choose({.verifier = verifiers_[first].get(),
                                .further_rows = behind,
                                .limit = static_cast<int>(std::min<std::size_t>(limit, kMostTokens)),
                                .token_ns = std::span(token_ns_).subspan(first),
                                .evidence = evidence});
  }

  // Tells the budget of a row which tokens of its chain were kept; those after the first rejected one were
  // not verified. `from`: the draft that handed in each token.
  static void learn(SeriesBudget& budget, int row, std::span<const int> from, std::size_t kept) {
    for (std::size_t i = 0; i < from.size() && i <= kept; ++i)
      budget.verified(from[i] - row, i == 0, i < kept);
  }

  /// The places of a chain that K asks for.
  struct Places {
    std::size_t count = 0;
    int last = -1;  // the draft that is asked for the last place
  };

  // Extends the text by the chain of row `row` of K, at most `limit` tokens: the tokens of drafts `row`, row
  // + 1, ... one after the other. `sources`, if not null, learns which draft handed in which tokens. Returns
  // the places of the chain, which the drafts may have left empty from some place on.
  Places collect(int row, std::size_t limit, Draft* sources = nullptr, int behind = 0) {
    Places places;
    if (row >= n_) return places;
    const bool chosen = !budgets_.empty();
    if (chosen) plan(row, limit, behind);
    const std::size_t first = text_.size();
    std::size_t& until = places.count;
    for (int draft = row; draft < n_; ++draft) {
      const std::size_t begin = text_.size();
      const int most = chosen ? budgets_of(*sequence_).rows[static_cast<std::size_t>(row)].tokens(draft - row)
                              : k_[static_cast<std::size_t>(row * n_ + draft)];
      if (chosen && most == 0) continue;
      const std::size_t asked = std::min(limit, until + static_cast<std::size_t>(most));
      if (asked > until) places.last = draft;
      until = asked;
      while (text_.size() - first < until && extend(draft, until - (text_.size() - first))) {
      }
      if (sources != nullptr && text_.size() > begin) {
        sources->contributions.push_back({static_cast<int>(begin - first) + 1, name_of(draft)});
      }
    }
    return places;
  }
  std::string_view name_of(int draft) const { return draft < models_ ? kDraftNames[draft] : kMaxGram; }

  // Extends the text by 1 to `room` tokens of a draft; returns false if it has none.
  bool extend(int draft, std::size_t room) {
    if (draft >= models_) {
      copied_.clear();
      if (copy_max_gram(text_, room, copied_) == 0) return false;
      text_.insert(text_.end(), copied_.begin(), copied_.end());
      q_.resize(text_.size(), 1);  // a copy is one-hot
      from_.resize(text_.size(), draft);
      return true;
    }
    Level& model = drafts_[static_cast<std::size_t>(draft)];
    DraftCache& cache = model.caches[static_cast<std::size_t>(sequence_->slot)];
    const std::size_t begin = text_.size(), capacity = static_cast<std::size_t>(cache.session().capacity());
    if (begin > capacity) return false;  // the text has outgrown the context of this model
    const double before_ns = spent_ns_;
    const Places places =
        collect(draft + 1, std::min(room - 1, capacity - begin), nullptr, cache.behind(*sequence_));
    const bool more = review(draft, cache, begin, places);
    if (!budgets_.empty())
      budgets_of(*sequence_)
          .times[static_cast<std::size_t>(draft)]
          .add(spent_ns_ - before_ns, static_cast<int>(text_.size() - begin));
    return more;
  }

  // Lets a model judge the tokens from `begin` on, in one forward: keeps those that pass and appends its own
  // token after them. `places` are those that K asks for from `begin` on. Returns false if it neither keeps
  // nor appends a token.
  bool review(int draft, DraftCache& cache, std::size_t begin, const Places& places) {
    const Level& model = drafts_[static_cast<std::size_t>(draft)];
    const std::size_t proposed = text_.size() - begin;
    const ModelConfig& config = model.resources.draft->config();
    const auto columns = static_cast<std::size_t>(config.head_rows());
    cache.catch_up(TokenSpan(text_).first(begin), static_cast<std::size_t>(sequence_->prompt_length), feed_);
    const std::size_t missing = feed_.size();
    feed_.insert(feed_.end(), text_.begin() + static_cast<std::ptrdiff_t>(begin), text_.end());
    parents_.resize(feed_.size());
    std::iota(parents_.begin(), parents_.end(), -1);
    rows_.resize(proposed + 1);
    std::iota(rows_.begin(), rows_.end(), static_cast<std::int32_t>(missing) - 1);
    logits_.resize(std::max(logits_.size(), rows_.size() * columns));
    const Feed feed{&cache.session(), feed_, parents_, rows_, logits_.data()};
    model.resources.draft->forward({&feed, 1});
    std::size_t kept = 0;
    bool more = true;
    while (more) {
      const std::size_t at = begin + kept;
      const std::span<const float> row = processed({logits_.data() + kept * columns, columns}, config, at);
      if (row.empty()) {  // the processors ban every token of a reduced vocabulary
        text_.resize(at);
        break;
      }
      best_.assign_logits(row, {}, config.head_ids, config.vocab);
      const Token token = best_.argmax();
      const bool lenient = options_.inner_lenience > 1;
      if (lenient) soft_.assign_logits(row, kSoft, config.head_ids, config.vocab);
      if (kept < proposed && text_[at] != token &&
          !(lenient && soft_.prob(text_[at]) > q_[at] / options_.inner_lenience)) {
        text_.resize(at);
        more = false;
      }
      if (kept == proposed) more = false;
      if (!more) text_.push_back(token);
      q_.resize(std::max(q_.size(), text_.size()), 1);
      if (lenient) q_[at] = soft_.prob(text_[at]);
      kept += more;
    }
    q_.resize(text_.size());
    cache.keep(TokenSpan(feed_).first(missing + kept));
    for (std::size_t i = 0; i < places.count && i <= kept; ++i) {
      const int from = i < proposed ? from_[begin + i] : places.last;  // an empty place is not kept
      draft_->add_review(kDraftNames[draft], name_of(from), i < kept);
    }
    if (!budgets_.empty()) {
      spent_ns_ += model.resources.costs->draft(static_cast<int>(feed_.size()));
      if (proposed > 0)
        learn(budgets_of(*sequence_).rows[static_cast<std::size_t>(draft) + 1], draft + 1,
              std::span(from_).subspan(begin, proposed), kept);
    }
    from_.resize(begin);
    from_.resize(text_.size(), draft);
    return text_.size() > begin;
  }

  // The row that decides the token at index `at` of the text, with the sequence's processors applied.
  std::span<const float> processed(std::span<const float> row, const ModelConfig& config, std::size_t at) {
    if (!sequence_->processors) return row;
    const std::size_t known = sequence_->tokens.size();
    processed_.resize(row.size());
    sequence_->processors->apply(row, config.head_ids, sequence_->tokens,
                                 TokenSpan(text_).subspan(known, at - known), processed_);
    if (std::all_of(processed_.begin(), processed_.end(), [](float z) { return std::isinf(z) && z < 0; }))
      return {};
    return processed_;
  }

  static constexpr SamplingParams kSoft{.temperature = 1, .top_k = 0, .top_p = 1};

  CascadeOptions options_;
  int models_, n_ = 0;
  std::vector<int> k_;  // [n, n]
  std::vector<Level> drafts_;
  // With a budget:
  std::vector<std::shared_ptr<const StepCosts>> verifiers_;  // [models + 1], costs of each row's verifier
  std::vector<Budgets> budgets_;                             // [batch]; empty without a budget
  std::vector<double> token_ns_;                             // [n], scratch
  double spent_ns_ = 0;  // time of the forwards of all drafts in this step so far, by the table of costs
  // The step in progress of one sequence:
  const Sequence* sequence_ = nullptr;
  Draft* draft_ = nullptr;
  std::vector<Token> text_;  // with the tokens drafted so far
  std::vector<double> q_;    // [text], q(x) of each token x as defined at the top of this file
  std::vector<int> from_;    // [text], the last draft that handed in or kept each token
  std::vector<Token> feed_, copied_;
  std::vector<std::int32_t> parents_, rows_;
  std::vector<float> logits_, processed_;
  Distribution best_, soft_;
};

const RegisterStrategy<CascadeOptions, Cascade> registered{{
    .name = "cascade",
    .summary = "larger drafts review in one forward what smaller ones drafted; copies at the bottom",
    .paper = "Chen et al. 2023, Cascade Speculative Drafting",
    .draft_source = "several small models, and copies from the text",
    .stop_rule = "budget; lengths of the matrix K",
    .verification = "chain",
    .criterion = "any rule; one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "small models with the target's vocabulary; nothing for layer skipping",
    .needs_draft = true,
    .most_drafts = kMostModels,
    .length_matrix = "k",
}};

}  // namespace
}  // namespace speclab
