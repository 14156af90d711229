// Prompt lookup: what followed the last n tokens when they occurred before will follow them again. Copies the
// continuation of an earlier occurrence, longest n first; tokens are one-hot. With several `candidates` the
// continuations of several occurrences are verified as a tree. With `fallback: draft` a small model drafts
// where nothing matches, with `merge: tree` it drafts always and all chains are verified as one tree.
//
// Paper:       Saxena 2023, "Prompt Lookup Decoding"; the same idea as Yang et al. 2023 (LLMA). Copying no
// more than has matched is the length limit of SuffixDecoding (Oliaro et al. 2024, its alpha = 1).
// Draft cost:  a search through the text on the host, microseconds; with a fallback also gamma draft
// forwards. Loses when:  the text repeats nothing, or a wide verification is dear: chance matches of one
// token are then pure cost.

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/spec/draft_chain.h"
#include "core/spec/registry.h"

namespace speclab {
namespace {

// Bounds on the work of a step: tokens of all candidates together, and occurrences that are looked at.
constexpr int kMostCopied = 64;
constexpr std::size_t kMostTried = 64;

struct Options {
  int ngram_max = 3;
  int ngram_min = 1;
  int length = 10;
  bool by_match = false;
  std::string match = "leftmost";
  int candidates = 1;
  bool cut_at_end = true;
  std::string fallback = "none";
  std::string merge = "either";
  DraftChainOptions chain;
  void fields(OptionVisitor& visit) {
    visit("ngram_max", ngram_max, Range<int>{1, 64}, "longest suffix of the text to look for");
    visit("ngram_min", ngram_min, Range<int>{1, 64}, "shortest suffix to look for");
    visit("length", length, Range<int>{1, 64}, "most tokens to copy");
    visit("by_match", by_match, "copy no more tokens than have matched: a long match is a safe one");
    visit("match", match, {"leftmost", "latest", "frequent"},
          "which of several earlier occurrences; frequent: the latest one before the commonest next token");
    visit("candidates", candidates, Range<int>{1, 16}, "different continuations to copy, as a tree");
    visit("cut_at_end", cut_at_end, "copy nothing behind an end token: it would never be emitted");
    visit("fallback", fallback, {"none", "draft"}, "who drafts where nothing matches");
    visit("merge", merge, {"either", "tree"}, "with a fallback: one source per step, or both as one tree");
    chain.fields(visit);
  }
};

std::size_t common_ending(TokenSpan a, TokenSpan b) {
  const auto ends = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return static_cast<std::size_t>(ends.first - a.rbegin());
}

/// Finds where the longest possible suffix occurred before. Keeps its memory between calls.
class Lookup {
 public:
  Lookup(const Options& options, std::vector<Token> ends) : options_(options), ends_(std::move(ends)) {}

  /// Positions behind the occurrences, best first; empty when there is none.
  const std::vector<std::size_t>& find(TokenSpan text) {
    found_.clear();
    const auto size = static_cast<std::ptrdiff_t>(text.size());
    for (std::ptrdiff_t n = std::min<std::ptrdiff_t>(options_.ngram_max, size - 1);
         n >= options_.ngram_min && found_.empty(); --n) {
      const TokenSpan suffix = text.last(static_cast<std::size_t>(n));
      const TokenSpan earlier = text.first(static_cast<std::size_t>(size - 1));  // something must follow it
      for (auto from = earlier.begin();; ++from) {
        from = std::search(from, earlier.end(), suffix.begin(), suffix.end());
        if (from == earlier.end()) break;
        found_.push_back(static_cast<std::size_t>(from - earlier.begin() + n));
        if (options_.match == "leftmost" && options_.candidates == 1) break;
      }
    }
    if (options_.match != "leftmost") std::reverse(found_.begin(), found_.end());
    if (options_.match == "frequent") {
      next_.clear();
      for (const std::size_t at : found_) next_.push_back(text[at]);
      std::sort(next_.begin(), next_.end());
      keyed_.clear();
      for (std::size_t i = 0; i < found_.size(); ++i) {
        const auto [first, last] = std::equal_range(next_.begin(), next_.end(), text[found_[i]]);
        keyed_.push_back({first - last, i, found_[i]});  // the commonest first, then the latest
      }
      std::sort(keyed_.begin(), keyed_.end());
      for (std::size_t i = 0; i < found_.size(); ++i) found_[i] = std::get<2>(keyed_[i]);
    }
    return found_;
  }

  /// What may be copied from a position on.
  TokenSpan copy(TokenSpan text, std::size_t from, int depth_limit) const {
    auto length = std::min<std::size_t>(text.size() - from, static_cast<std::size_t>(options_.length));
    length = std::min(length, static_cast<std::size_t>(std::max(depth_limit, 0)));
    if (options_.by_match) length = std::min(length, common_ending(text.first(from), text));
    const TokenSpan copied = text.subspan(from, length);
    if (!options_.cut_at_end) return copied;
    const auto end = std::find_first_of(copied.begin(), copied.end(), ends_.begin(), ends_.end());
    return end == copied.end() ? copied : copied.first(static_cast<std::size_t>(end - copied.begin()) + 1);
  }

 private:
  const Options& options_;
  std::vector<Token> ends_;
  std::vector<std::size_t> found_;
  std::vector<Token> next_;
  std::vector<std::tuple<std::ptrdiff_t, std::size_t, std::size_t>> keyed_;
};

class PromptLookup final : public Strategy {
 public:
  PromptLookup(const Options& options, const Resources& resources)
      : options_(options),
        lookup_(options_, resources.target->tokenizer() ? resources.target->tokenizer()->end_of_generation()
                                                        : std::vector<Token>()),
        merge_(options.merge == "tree") {
    if (options_.ngram_min > options_.ngram_max) {
      throw Error({"prompt_lookup: ngram_min", std::to_string(options_.ngram_min),
                   "at most ngram_max = " + std::to_string(options_.ngram_max), ""});
    }
    if (options_.fallback == "draft") {
      if (!resources.draft)
        throw Error({"prompt_lookup: fallback", "no draft model", "a draft model",
                     "Name one, or set fallback to none."});
      chain_ = std::make_unique<DraftChain>(options_.chain, resources);
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
      // The model's chain is nodes 1 .. drafted, whatever else hangs in the tree.
      const int drafted = by_model_[sequences[i]->slot];
      const auto& path = outcomes[i].acceptance->path;
      chain_->observe(*sequences[i], drafted,
                      static_cast<int>(std::count_if(path.begin(), path.end(),
                                                     [=](int node) { return node <= drafted; })));
    }
  }

 private:
  // Hangs the copies into the tree, along the nodes that are there. Where the model drew the same token under
  // the same prefix its node is shared: the verifier tries the drawn token first, and once that is rejected a
  // second child of the same token has no chance under any exact rule, so leaving it out changes no law.
  void add_copies(const Sequence& sequence, Draft& draft) {
    const int by_model = draft.tree.drafted();
    const TokenSpan text = sequence.tokens;
    const std::vector<std::size_t>& found = lookup_.find(text);
    int added = 0;
    for (std::size_t tried = 0; tried < std::min(found.size(), kMostTried) && added < options_.candidates;
         ++tried) {
      int node = 0;
      bool is_new = false;
      for (const Token token : lookup_.copy(text, found[tried], sequence.depth_limit)) {
        const int shared = child(draft.tree, node, token);
        is_new = is_new || shared == 0;
        node = shared > 0 ? shared : draft.add(token, node);
      }
      added += is_new || options_.candidates == 1 ? 1 : 0;
      if (draft.tree.drafted() - by_model + options_.length > kMostCopied) break;
    }
    if (draft.tree.drafted() > by_model) draft.source = by_model > 0 ? "draft+lookup" : "lookup";
  }

  static int child(const TokenTree& tree, int parent, Token token) {
    for (int node = parent + 1; node < tree.size(); ++node) {
      if (tree.parent(node) == parent && tree.token(node) == token) return node;
    }
    return 0;
  }

  Options options_;
  Lookup lookup_;
  bool merge_;
  std::unique_ptr<DraftChain> chain_;
  std::vector<int> by_model_;  // [batch], nodes of the present draft that the model drew
  std::vector<const Sequence*> rest_;
  std::vector<Draft*> rest_drafts_;
};

const RegisterStrategy<Options, PromptLookup> registered{{
    .name = "prompt_lookup",
    .summary = "copies what followed the last n tokens before; a draft model may fill the gaps",
    .paper = "Saxena 2023, Prompt Lookup Decoding; Yang et al. 2023 (LLMA)",
    .draft_source = "copies from the text; optionally a small model",
    .stop_rule = "length, end of the text or token; schedule of the small model",
    .verification = "chain; tree with candidates or merge",
    .criterion = "any rule; one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing",
}};

}  // namespace
}  // namespace speclab
