#include "core/decoding/drafting/retrieval_tree.h"

#include <algorithm>
#include <string>

#include "core/base/error.h"

namespace speclab {

void RetrievalOptions::fields(OptionVisitor& visit) {
  visit("ngram_max", ngram_max, Range<int>{1, Datastore::kDepth}, "longest suffix of the text to look up");
  visit("ngram_min", ngram_min, Range<int>{1, Datastore::kDepth}, "shortest suffix to look up");
  visit("length", length, Range<int>{1, 31}, "largest number of tokens of a continuation");
  visit("nodes", nodes, Range<int>{1, 64},
        "largest number of nodes of the tree; the most frequent prefixes are taken");
  visit("min_share", min_share, Range<double>{0, 1},
        "drop a prefix if less than this share of the continuations begins with it");
  visit("hits", hits, Range<int>{1, 4096}, "continuations to look at, evenly spaced among all occurrences");
}

RetrievalTree::RetrievalTree(const RetrievalOptions& options) : options_(options) {
  if (options_.ngram_min > options_.ngram_max) {
    throw Error({"retrieval: ngram_min", std::to_string(options_.ngram_min),
                 "at most ngram_max = " + std::to_string(options_.ngram_max), ""});
  }
  // The prefixes in the heap stand for disjoint parts of the sample. So the heap never has more than `hits`
  // entries.
  sample_.reserve(static_cast<std::size_t>(options_.hits));
  open_.reserve(static_cast<std::size_t>(options_.hits));
  nodes_.reserve(static_cast<std::size_t>(options_.nodes));
}

void RetrievalTree::run(const Datastore& store, TokenSpan text, int limit) {
  nodes_.clear();
  const auto range = store.find_suffix(text, options_.ngram_min, options_.ngram_max);
  matched_ = range.length;
  // The occurrences are sorted by kDepth tokens. Further on, equal continuations need not be neighbours.
  limit = std::min({options_.length, limit, Datastore::kDepth - range.length});
  if (limit <= 0 || range.size() == 0) return;
  const auto all = std::min(range.size(), static_cast<std::size_t>(options_.hits));
  sample_.clear();
  for (std::size_t i = 0; i < all; ++i) sample_.push_back(range.first + i * range.size() / all);
  // The most frequent prefix comes first. Among equally frequent ones the shorter prefix comes first, so a
  // parent comes before its children.
  const auto lighter = [](const Prefix& a, const Prefix& b) {
    const int x = a.last - a.first, y = b.last - b.first;
    return x != y ? x < y : a.depth != b.depth ? a.depth > b.depth : a.first > b.first;
  };
  open_.clear();
  const auto expand = [&](int first, int last, int parent, int depth) {
    if (depth > limit) return;
    const auto token = [&](int i) {
      return store.token(sample_[static_cast<std::size_t>(i)], range.length + depth - 1);
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
  expand(0, static_cast<int>(all), -1, 1);
  while (!open_.empty() && static_cast<int>(nodes_.size()) < options_.nodes) {
    std::pop_heap(open_.begin(), open_.end(), lighter);
    const Prefix next = open_.back();
    open_.pop_back();
    const double share = static_cast<double>(next.last - next.first) / static_cast<double>(all);
    nodes_.push_back({next.token, next.parent, share});
    expand(next.first, next.last, static_cast<int>(nodes_.size()) - 1, next.depth + 1);
  }
}

}  // namespace speclab
