// Retrieval: the longest ending of the text that occurs in a datastore of other texts is looked up, its
// continuations there become a tree weighted by how often each beginning occurs, and the heaviest nodes are
// drafted; one-hot.
//
// Paper:       He et al. 2023, "REST: Retrieval-Based Speculative Decoding". Their sampling mode draws a
//              token per path and drops it on a mismatch, which is biased; here every rule is exact, because
//              the tree goes through the ordinary verifier.
// Draft cost:  some binary searches in a mapped suffix array, microseconds.
// Loses when:  the datastore speaks of other things, or rows are dear: matches of two tokens are often
//              chance.

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/spec/datastore.h"
#include "core/spec/registry.h"

namespace speclab {
namespace {

struct Options {
  std::string datastore;
  int ngram_max = 16;
  int ngram_min = 2;
  int length = 10;
  int nodes = 16;
  double min_share = 0;
  int hits = 64;
  void fields(OptionVisitor& visit) {
    visit("datastore", datastore, "file made by `speclab datastore build`; needed");
    visit("ngram_max", ngram_max, Range<int>{1, Datastore::kDepth}, "longest ending of the text to look for");
    visit("ngram_min", ngram_min, Range<int>{1, Datastore::kDepth}, "shortest ending to look for");
    visit("length", length, Range<int>{1, 31}, "most tokens of a continuation");
    visit("nodes", nodes, Range<int>{1, 64}, "most nodes of the tree: the most frequent beginnings");
    visit("min_share", min_share, Range<double>{0, 1},
          "drop beginnings that fewer of the continuations have");
    visit("hits", hits, Range<int>{1, 4096}, "continuations to look at, evenly among all occurrences");
  }
};

class Retrieval final : public Strategy {
 public:
  // `needs_file` below makes sure that a datastore is named.
  Retrieval(const Options& options, const Resources& resources)
      : options_(options), store_(Datastore::open(options.datastore)) {
    if (options_.ngram_min > options_.ngram_max) {
      throw Error({"retrieval: ngram_min", std::to_string(options_.ngram_min),
                   "at most ngram_max = " + std::to_string(options_.ngram_max), ""});
    }
    store_.require(resources.target->config().vocab, resources.target->tokenizer_sha256());
    // The beginnings that wait are disjoint parts of the sample.
    sample_.reserve(static_cast<std::size_t>(options_.hits));
    open_.reserve(static_cast<std::size_t>(options_.hits));
  }

  void begin(const Sequence&) override {}

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) draft_one(*sequences[i], *drafts[i]);
  }

 private:
  // A beginning of continuations: the sample's entries [first, last), which follow one another in the suffix
  // array.
  struct Beginning {
    int first, last;
    int parent, depth;
    Token token;
  };

  void draft_one(const Sequence& sequence, Draft& draft) {
    const auto range = store_.find_ending(sequence.tokens, options_.ngram_min, options_.ngram_max);
    // Behind that depth occurrences are not sorted: equal beginnings need not be neighbours.
    const int limit = std::min({options_.length, sequence.depth_limit, Datastore::kDepth - range.length});
    if (limit <= 0 || range.size() == 0) return;
    const auto all = std::min(range.size(), static_cast<std::size_t>(options_.hits));
    sample_.clear();
    for (std::size_t i = 0; i < all; ++i) sample_.push_back(range.first + i * range.size() / all);
    // The heaviest beginning first, the one with fewer tokens among equals: parents come before children.
    const auto lighter = [](const Beginning& a, const Beginning& b) {
      const int x = a.last - a.first, y = b.last - b.first;
      return x != y ? x < y : a.depth != b.depth ? a.depth > b.depth : a.first > b.first;
    };
    open_.clear();
    const auto expand = [&](int first, int last, int parent, int depth) {
      if (depth > limit) return;
      const auto token = [&](int i) {
        return store_.token(sample_[static_cast<std::size_t>(i)], range.length + depth - 1);
      };
      for (int from = first; from < last;) {
        int until = from + 1;
        while (until < last && token(until) == token(from)) ++until;
        if (token(from) >= 0 && until - from >= options_.min_share * static_cast<double>(all)) {
          open_.push_back({from, until, parent, depth, token(from)});
          std::push_heap(open_.begin(), open_.end(), lighter);
        }
        from = until;
      }
    };
    expand(0, static_cast<int>(all), 0, 1);
    while (!open_.empty() && draft.tree.drafted() < options_.nodes) {
      std::pop_heap(open_.begin(), open_.end(), lighter);
      const Beginning next = open_.back();
      open_.pop_back();
      const double share = static_cast<double>(next.last - next.first) / static_cast<double>(all);
      const int node = draft.add(next.token, next.parent, Draft::kOneHot, static_cast<float>(share));
      expand(next.first, next.last, node, next.depth + 1);
    }
    if (draft.tree.drafted() > 0) draft.source = "retrieval";
  }

  Options options_;
  Datastore store_;
  std::vector<std::size_t> sample_;
  std::vector<Beginning> open_;
};

const RegisterStrategy<Options, Retrieval> registered{{
    .name = "retrieval",
    .summary = "continuations of the text's ending in a datastore of other texts, as a weighted tree",
    .paper = "He et al. 2023, REST",
    .draft_source = "copies from a datastore",
    .stop_rule = "most frequent beginnings, length",
    .verification = "tree",
    .criterion = "any rule; one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing; a datastore is built",
    .needs_file = "datastore",
}};

}  // namespace
}  // namespace speclab
