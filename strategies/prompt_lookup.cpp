// Prompt lookup: what followed the last n tokens when they occurred before will follow them again. Copies the
// continuation of an earlier occurrence, longest n first; tokens are one-hot. With `fallback: draft` a small
// model drafts where nothing matches, with `merge: tree` it drafts always and both chains are verified as one
// tree.
//
// Paper:       Saxena 2023, "Prompt Lookup Decoding"; the same idea as Yang et al. 2023 (LLMA). Copying no
// more than has matched is the length limit of SuffixDecoding (Oliaro et al. 2024, its alpha = 1).
// Draft cost:  a search through the text on the host, microseconds; with a fallback also gamma draft
// forwards. Loses when:  the text repeats nothing, or a wide verification is dear: chance matches of one
// token are then pure cost.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/spec/draft_chain.h"
#include "core/spec/registry.h"

namespace speclab {
namespace {

struct Options {
  int ngram_max = 3;
  int ngram_min = 1;
  int length = 10;
  bool by_match = false;
  std::string match = "leftmost";
  std::string fallback = "none";
  std::string merge = "either";
  DraftChainOptions chain;
  void fields(OptionVisitor& visit) {
    visit("ngram_max", ngram_max, Range<int>{1, 64}, "longest suffix of the text to look for");
    visit("ngram_min", ngram_min, Range<int>{1, 64}, "shortest suffix to look for");
    visit("length", length, Range<int>{1, 64}, "most tokens to copy");
    visit("by_match", by_match, "copy no more tokens than have matched: a long match is a safe one");
    visit("match", match, {"leftmost", "latest"}, "which of several earlier occurrences");
    visit("fallback", fallback, {"none", "draft"}, "who drafts where nothing matches");
    visit("merge", merge, {"either", "tree"}, "with a fallback: one source per step, or both as one tree");
    chain.fields(visit);
  }
};

std::size_t common_ending(TokenSpan a, TokenSpan b) {
  const auto ends = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return static_cast<std::size_t>(ends.first - a.rbegin());
}

// The tokens that followed an earlier occurrence of the longest possible suffix; empty when there is none.
TokenSpan look_up(TokenSpan text, const Options& options) {
  const auto size = static_cast<std::ptrdiff_t>(text.size());
  for (std::ptrdiff_t n = std::min<std::ptrdiff_t>(options.ngram_max, size - 1); n >= options.ngram_min;
       --n) {
    const TokenSpan suffix = text.last(static_cast<std::size_t>(n));
    const TokenSpan earlier = text.first(static_cast<std::size_t>(size - 1));  // something must follow it
    const auto found = options.match == "leftmost"
                           ? std::search(earlier.begin(), earlier.end(), suffix.begin(), suffix.end())
                           : std::find_end(earlier.begin(), earlier.end(), suffix.begin(), suffix.end());
    if (found == earlier.end()) continue;
    const auto from = static_cast<std::size_t>(found - earlier.begin() + n);
    auto length = std::min<std::size_t>(text.size() - from, static_cast<std::size_t>(options.length));
    if (options.by_match) length = std::min(length, common_ending(text.first(from), text));
    return text.subspan(from, length);
  }
  return {};
}

class PromptLookup final : public Strategy {
 public:
  PromptLookup(const Options& options, const Resources& resources)
      : options_(options), merge_(options.merge == "tree") {
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
      const TokenSpan copy = look_up(sequences[i]->tokens, options_);
      if (!merge_) add_copy(*sequences[i], copy, *drafts[i]);
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
      if (merge_) add_copy(*rest_[i], look_up(rest_[i]->tokens, options_), *rest_drafts_[i]);
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
  // Hangs the copy into the tree. Where the model drew the same token under the same prefix its node is
  // shared: the verifier tries the drawn token first, and once that is rejected a second child of the same
  // token has no chance under any exact rule, so leaving it out changes no law.
  static void add_copy(const Sequence& sequence, TokenSpan copy, Draft& draft) {
    const int by_model = draft.tree.drafted();
    int node = 0;
    for (const Token token :
         copy.first(std::min(copy.size(), static_cast<std::size_t>(std::max(sequence.depth_limit, 0))))) {
      const bool shared = node < by_model && node + 1 <= by_model && draft.tree.token(node + 1) == token;
      node = shared ? node + 1 : draft.add(token, node);
    }
    if (draft.tree.drafted() > by_model) draft.source = by_model > 0 ? "draft+lookup" : "lookup";
  }

  Options options_;
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
    .stop_rule = "length, end of the text; schedule of the small model",
    .verification = "chain; tree with merge",
    .criterion = "any rule; one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing",
}};

}  // namespace
}  // namespace speclab
