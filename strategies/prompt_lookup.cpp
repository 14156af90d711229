// Prompt lookup: if the last n tokens of the text occurred earlier, the tokens that followed them there may
// follow again. The strategy copies the continuation of an earlier occurrence. It tries the longest n first.
// Copied tokens are one-hot. With several `candidates` the continuations of several occurrences are verified
// as a tree. With `fallback: draft` a small model drafts when nothing matches. With `merge: tree` the model
// always drafts, and its chain and the copies are verified as one tree. `reference: prompt` is LLMA: when
// the last tokens of the output occur in the prompt, which contains the documents, their continuation there
// is copied.
//
// Paper:       Saxena 2023, "Prompt Lookup Decoding"; Yang et al. 2023, "Inference with Reference: Lossless
//              Acceleration of Large Language Models" (LLMA). ngram_min is LLMA's trigger length n, length is
//              its number k of copied tokens, and ngram_max is 5 in its code. `by_match` copies at most as
//              many tokens as have matched. SuffixDecoding (Oliaro et al. 2024) copies at most the length of
//              the match times a factor, which the paper calls alpha; here the factor is 1.
// Draft cost:  microseconds to search the text on the host; gamma draft forwards where the model drafts.
// Loses when:  the text repeats nothing, or a forward of many rows is expensive. Then chance matches of one
//              token only cost time.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

// Limits of the work in a step: tokens of all candidates together, and occurrences that are looked at.
constexpr int kMostCopied = 64;
constexpr std::size_t kMostTried = 64;

enum class Match { leftmost, latest, frequent };
enum class Reference { text, prompt };
enum class Fallback { none, draft };
enum class Merge { either, tree };

struct PromptLookupOptions {
  int ngram_max = 3;
  int ngram_min = 1;
  int length = 10;
  bool by_match = false;
  Match match = Match::leftmost;
  Reference reference = Reference::text;
  int candidates = 1;
  bool cut_at_end = true;
  Fallback fallback = Fallback::none;
  Merge merge = Merge::either;
  CutBudgetOptions budget;
  DraftChainOptions chain;
  void fields(OptionVisitor& visit) {
    visit("ngram_max", ngram_max, Range<int>{1, 64}, "longest suffix of the text to look up");
    visit("ngram_min", ngram_min, Range<int>{1, 64}, "shortest suffix to look up");
    visit("length", length, Range<int>{1, 64}, "largest number of tokens to copy");
    visit("by_match", by_match, "copy no more tokens than have matched, because a long match is safer");
    visit("match", match,
          {{Match::leftmost, "leftmost"}, {Match::latest, "latest"}, {Match::frequent, "frequent"}},
          "which of several earlier occurrences; frequent: the latest one with the most common next token");
    visit("reference", reference, {{Reference::text, "text"}, {Reference::prompt, "prompt"}},
          "text: the last tokens of the text are looked up in prompt and output; prompt: the last tokens of "
          "the output are looked up in the prompt only");
    visit("candidates", candidates, Range<int>{1, 16},
          "number of different continuations to copy, as a tree");
    visit("cut_at_end", cut_at_end, "copy nothing after an end token, because it would never be emitted");
    visit("fallback", fallback, {{Fallback::none, "none"}, {Fallback::draft, "draft"}},
          "who drafts when nothing matches");
    visit(
        "merge", merge, {{Merge::either, "either"}, {Merge::tree, "tree"}},
        "with fallback draft. either: in a step the copies draft, or the model if there are none; tree: the "
        "model drafts in every step, and its chain and the copies are one tree");
    budget.fields(visit);
    chain.fields(visit);
  }
};

/// Finds the longest suffix of the text that also occurs earlier, and its earlier occurrences. Reuses its
/// buffers, so it allocates no memory for a text of at most `capacity` tokens.
class Lookup {
 public:
  Lookup(const PromptLookupOptions& options, const Resources& resources)
      : options_(options),
        ends_(resources.target->tokenizer() ? resources.target->tokenizer()->end_of_generation()
                                            : std::vector<Token>()) {
    matched_.reserve(static_cast<std::size_t>(resources.capacity) + 1);
    found_.reserve(static_cast<std::size_t>(resources.capacity) + 1);
    if (options_.match != Match::frequent) return;
    ranked_.reserve(static_cast<std::size_t>(resources.capacity) + 1);
    times_.resize(static_cast<std::size_t>(resources.target->config().vocab));
  }

  /// Positions after the occurrences, best first; at most kMostTried. Empty when there are none.
  std::span<const std::size_t> find(const Sequence& sequence) {
    const TokenSpan text = sequence.tokens;
    const auto behind = static_cast<std::uint32_t>(
        text.size() - reference(sequence));  // number of tokens at the end of the text that are never copied
    auto longest = static_cast<std::uint32_t>(options_.ngram_max);
    if (behind > 0) longest = std::min(longest, behind);
    auto best = static_cast<std::uint32_t>(options_.ngram_min);
    found_.clear();
    match_endings(text, [&](std::uint32_t back, std::uint32_t matched) {
      matched = std::min(matched, longest);
      if (back <= behind || matched < best) return;
      if (matched > best) found_.clear();
      best = matched;
      found_.push_back(text.size() - back);
    });
    if (options_.match == Match::leftmost) std::reverse(found_.begin(), found_.end());
    if (options_.match == Match::frequent) commonest_first(text);
    return std::span(found_).first(std::min(found_.size(), kMostTried));
  }

  /// Number of tokens before `from` that equal the end of the text. `from` is as in copy().
  int match_length(const Sequence& sequence, std::size_t from) const {
    return static_cast<int>(matched_[sequence.tokens.size() - from]);
  }
  /// Returns the tokens to copy. `from` is a position that the last find() returned for this text.
  TokenSpan copy(const Sequence& sequence, std::size_t from) const {
    const TokenSpan text = sequence.tokens;
    auto length =
        std::min<std::size_t>(reference(sequence) - from, static_cast<std::size_t>(options_.length));
    length = std::min(length, static_cast<std::size_t>(std::max(sequence.depth_limit, 0)));
    if (options_.by_match) length = std::min<std::size_t>(length, matched_[text.size() - from]);
    const TokenSpan copied = text.subspan(from, length);
    if (!options_.cut_at_end) return copied;
    const auto end = std::find_first_of(copied.begin(), copied.end(), ends_.begin(), ends_.end());
    return end == copied.end() ? copied : copied.first(static_cast<std::size_t>(end - copied.begin()) + 1);
  }

 private:
  // Number of tokens, from the start of the text, that are searched and copied.
  std::size_t reference(const Sequence& sequence) const {
    return options_.reference == Reference::prompt ? static_cast<std::size_t>(sequence.prompt_length)
                                                   : sequence.tokens.size();
  }

  // For every `back` from 1 on, compares the text with itself shifted by `back` tokens: counts how many
  // tokens at the end of the text equal the tokens that end `back` positions earlier. Stores the count in
  // matched_[back] and calls visit(back, count) if it is positive. This is the Z algorithm (Gusfield
  // 1997, Section 1.3), run from the end. Its time is linear in the text, also for repetitive texts.
  template <class Visit>
  void match_endings(TokenSpan text, Visit visit) {
    const auto size = static_cast<std::uint32_t>(text.size());
    const Token* const last = text.data() + size - 1;
    matched_.resize(size);
    std::uint32_t* const matched = matched_.data();
    for (std::uint32_t back = 1, begin = 0, end = 0; back < size; ++back) {
      std::uint32_t n = back < end ? std::min(end - back, matched[back - begin]) : 0;
      while (back + n < size && *(last - n) == *(last - back - n)) ++n;
      matched[back] = n;
      if (n == 0) continue;
      if (back + n > end) begin = back, end = back + n;
      visit(back, n);
    }
  }

  // Sorts the occurrences by how common their next token is; among equals the latest comes first. Sorts
  // only as many occurrences as are looked at.
  void commonest_first(TokenSpan text) {
    for (const std::size_t at : found_) ++times_[static_cast<std::size_t>(text[at])];
    ranked_.clear();
    for (std::size_t i = 0; i < found_.size(); ++i)
      ranked_.push_back({-times_[static_cast<std::size_t>(text[found_[i]])], i});
    for (const std::size_t at : found_) times_[static_cast<std::size_t>(text[at])] = 0;
    const std::size_t wanted = std::min(ranked_.size(), kMostTried);
    std::partial_sort(ranked_.begin(), ranked_.begin() + static_cast<std::ptrdiff_t>(wanted), ranked_.end());
    // Replaces indices by positions before found_ is overwritten.
    for (std::size_t i = 0; i < wanted; ++i) ranked_[i].second = found_[ranked_[i].second];
    for (std::size_t i = 0; i < wanted; ++i) found_[i] = ranked_[i].second;
  }

  const PromptLookupOptions& options_;
  std::vector<Token> ends_;
  std::vector<std::uint32_t> matched_;  // [text]
  std::vector<std::size_t> found_;
  std::vector<int> times_;                           // [vocab], zero between calls
  std::vector<std::pair<int, std::size_t>> ranked_;  // minus the count, index in found_
};

class PromptLookup final : public Strategy {
 public:
  PromptLookup(const PromptLookupOptions& options, const Resources& resources)
      : options_(options), lookup_(options_, resources), merge_(options.merge == Merge::tree) {
    if (options_.ngram_min > options_.ngram_max) {
      throw Error({"prompt_lookup: ngram_min", std::to_string(options_.ngram_min),
                   "at most ngram_max = " + std::to_string(options_.ngram_max), ""});
    }
    if (options_.fallback == Fallback::draft) {
      if (!resources.draft)
        throw Error({"prompt_lookup: fallback", "no draft model", "a draft model",
                     "Name a draft model, or set fallback to none."});
      chain_ = std::make_unique<DraftChain>(options_.chain, resources, options_.budget.rule);
    } else if (merge_) {
      throw Error({"prompt_lookup: merge", "\"tree\" without a fallback", "fallback \"draft\"",
                   "A tree needs two sources."});
    }
    by_model_.resize(static_cast<std::size_t>(resources.batch));
  }

  void begin(const Sequence& sequence) override {
    if (chain_) chain_->begin(sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    rest_.clear();
    rest_drafts_.clear();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if (!merge_) add_copies(*sequences[i], *drafts[i]);
      if (chain_ && drafts[i]->tree.drafted() == 0) {
        rest_.push_back(sequences[i]);
        rest_drafts_.push_back(drafts[i]);
      }
      by_model_[sequences[i]->slot] = 0;
    }
    if (!chain_) return;
    chain_->draft(rest_, rest_drafts_);
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      by_model_[rest_[i]->slot] = rest_drafts_[i]->tree.drafted();
      if (merge_) add_copies(*rest_[i], *rest_drafts_[i]);
    }
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    if (!chain_) return;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      // Nodes 1 to `drafted` are the model's chain, which no budget cuts; copies come after it.
      const int drafted = by_model_[sequences[i]->slot];
      const auto& path = outcomes[i].acceptance->path;
      chain_->observe(*sequences[i], drafted,
                      static_cast<int>(std::count_if(path.begin(), path.end(),
                                                     [=](int node) { return node <= drafted; })));
    }
  }

 private:
  // Adds the copies to the tree. A copy shares the nodes that the tree already has for its first tokens, also
  // nodes of the model's chain. Sharing does not change the text's distribution: the verifier tests the
  // model's token, which was drawn, before the copied ones. Once that token is rejected, no exact rule
  // accepts a second child with the same token.
  void add_copies(const Sequence& sequence, Draft& draft) {
    const int by_model = draft.tree.drafted();
    int added = 0;
    for (const std::size_t from : lookup_.find(sequence)) {
      if (added == 0) draft.evidence = lookup_.match_length(sequence, from);
      if (added == options_.candidates) break;
      int node = 0;
      bool is_new = false;
      for (const Token token : lookup_.copy(sequence, from)) {
        const int shared = draft.tree.child(node, token);
        is_new = is_new || shared == 0;
        node = shared > 0 ? shared : draft.add(token, node);
      }
      added += is_new || options_.candidates == 1 ? 1 : 0;
      if (draft.tree.drafted() - by_model + options_.length > kMostCopied) break;
    }
    if (draft.tree.drafted() == by_model) return;
    draft.source = by_model > 0 ? "draft+lookup" : "lookup";
    if (by_model > 0) draft.contributions = {{1, "draft"}, {by_model + 1, "lookup"}};
  }

  PromptLookupOptions options_;
  Lookup lookup_;
  bool merge_;
  std::unique_ptr<DraftChain> chain_;
  std::vector<int> by_model_;  // [batch], nodes of the current draft that the model drew
  std::vector<const Sequence*> rest_;
  std::vector<Draft*> rest_drafts_;
};

constexpr StrategyBenchmark kPromptLookupBenchmarks[] = {
    {"prompt_lookup", "{}", BenchmarkKind::replayed},
    {"prompt_lookup,frequent,candidates:3", R"({"match": "frequent", "candidates": 3})",
     BenchmarkKind::replayed}};

const RegisterStrategy<PromptLookupOptions, PromptLookup> registered{{
    .name = "prompt_lookup",
    .summary =
        "copies what followed an earlier occurrence of the last n tokens; a draft model may fill the gaps",
    .paper = "Saxena 2023, Prompt Lookup Decoding; Yang et al. 2023 (LLMA)",
    .draft_source = "copies from the text or the prompt; optionally a small model",
    .stop_rule = "option length, end of the text or end token; schedule of the small model",
    .verification = "chain; tree with candidates or merge",
    .criterion = "any rule; one-hot q, except for tokens of the small model",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing",
    .short_name = "lookup",
    .shows_recording_cost = true,
    .searched_as = SearchedAs::copies,
    .benchmarks = kPromptLookupBenchmarks,
}};

}  // namespace
}  // namespace speclab
