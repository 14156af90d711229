#include "core/decoding/drafting/suffix_speculation.h"

#include <algorithm>
#include <cmath>

namespace speclab {
namespace {

// Limits of the work in a step: contexts that are tried, continuations of one context that a tree looks at
// besides the most frequent one, and tokens that are speculated.
constexpr int kContexts = 12;
constexpr int kContinuations = 32;
constexpr int kMostNodes = 64;

using Match = SuffixAutomaton::Match;

// Shortens the context so that the index still counts it when one more token follows.
Match countable(const SuffixAutomaton& text, Match context) {
  return context.length < text.depth() ? context : text.suffix(context, text.depth() - 1);
}

double share(std::uint32_t count, double occurrences) {
  return std::min(1.0, count / std::max(1.0, occurrences));
}

}  // namespace

void SuffixSpeculationOptions::fields(OptionVisitor& visit) {
  visit("length", length, Range<int>{1, kMostNodes}, "largest number of tokens to speculate");
  visit("factor", factor, Range<double>{0, 64},
        "after m matching tokens, at most factor * m + offset tokens are speculated");
  visit("offset", offset, Range<double>{-64, 64},
        "offset in the limit factor * m + offset, see the option factor");
  visit("min_probability", min_probability, Range<double>{0, 1},
        "stop where the probability of the whole path (frequencies times trust) is below this");
  visit("trust", trust, Range<double>{0, 1},
        "how often a copied token is correct after 1, 2, ... matching tokens (the last entry also holds for "
        "longer matches); its frequency is multiplied by this");
  visit("tree", tree, "draft a tree of the most probable continuations instead of the most frequent path");
  visit("contexts", contexts, {{SuffixContexts::best, "best"}, {SuffixContexts::enough, "enough"}},
        "which suffix of the text to continue. best: the one with the most expected accepted tokens. enough: "
        "the longest one after which the tree has at least depth - 1 nodes, as in the trie of alipay's "
        "Lookahead; it always drafts a tree and does not use factor and offset");
}

SuffixSpeculation::SuffixSpeculation() {
  nodes_.reserve(kMostNodes);
  tried_.reserve(kMostNodes);
  children_.reserve(2 + kContinuations);
  leaves_.reserve((1 + kMostNodes) * (2 + kContinuations));
}

void SuffixSpeculation::clear() {
  nodes_.clear();
  score_ = 0;
  matched_ = 0;
}

void SuffixSpeculation::run(const SuffixAutomaton& text, Match context, bool at_end, int limit,
                            const SuffixSpeculationOptions& options) {
  clear();
  options_ = &options;
  limit = std::min(limit, options.length);
  if (options.contexts == SuffixContexts::enough) return retrieve(text, context, at_end, limit);
  const int matched = context.length;
  context = countable(text, context);
  for (int tried = 0; tried < kContexts && context.length > 0;
       ++tried, context = text.more_frequent(context)) {
    const int length = tried == 0 ? matched : context.length;
    const double allowed = std::floor(options.factor * length + options.offset);
    const int budget = static_cast<int>(std::clamp<double>(allowed, 0, options.length));
    if (budget <= score_)
      break;  // shorter contexts have no larger budget, and a token adds at most 1 to the score
    tried_.clear();
    const double occurrences = static_cast<double>(text.count(context.state)) - (at_end ? 1 : 0);
    if (options.tree) tree(text, context, occurrences, length, budget, limit);
    else path(text, context, occurrences, length, std::min(budget, limit));
    double score = 0;
    for (const Node& node : tried_) score += node.probability;
    if (score > score_) take(length);
  }
}

// Tries each length of the context, also lengths in the same class of the automaton. A shorter context allows
// a deeper tree, because the context and a path of the tree together have at most text.depth() tokens.
void SuffixSpeculation::retrieve(const SuffixAutomaton& text, Match context, bool at_end, int limit) {
  const int enough = text.depth() - 1;
  for (int length = std::min({context.length, enough, kContexts}); length > 0; --length) {
    context = text.suffix(context, length);
    const double occurrences = static_cast<double>(text.count(context.state)) - (at_end ? 1 : 0);
    tried_.clear();
    tree(text, context, occurrences, length, options_->length, std::min(limit, text.depth() - length));
    if (!tried_.empty()) take(length);
    if (static_cast<int>(nodes_.size()) >= enough) return;
  }
}

void SuffixSpeculation::take(int matched) {
  nodes_.swap(tried_);
  matched_ = matched;
  score_ = 0;
  for (const Node& node : nodes_) score_ += node.probability;
}

double SuffixSpeculation::trust(const std::vector<double>& trust, int matched) {
  return trust.empty() ? 1 : trust[std::min(trust.size(), static_cast<std::size_t>(matched)) - 1];
}

void SuffixSpeculation::path(const SuffixAutomaton& text, Match context, double occurrences, int matched,
                             int budget) {
  double probability = 1;
  while (static_cast<int>(tried_.size()) < budget) {
    context = countable(text, context);
    if (!tried_.empty()) occurrences = text.count(context.state);
    const auto child = text.best_child(context.state);
    if (child.state == SuffixAutomaton::kNone) return;
    probability *=
        share(child.count, occurrences) * trust(options_->trust, matched + static_cast<int>(tried_.size()));
    if (probability < options_->min_probability) return;
    tried_.push_back({child.token, static_cast<int>(tried_.size()) - 1, probability});
    context = {child.state, context.length + 1};
  }
}

void SuffixSpeculation::tree(const SuffixAutomaton& text, Match context, double occurrences, int matched,
                             int budget, int limit) {
  const auto less = [](const Leaf& a, const Leaf& b) { return a.node.probability < b.node.probability; };
  leaves_.clear();
  const auto expand = [&](Match from, double times, int parent, double probability, int depth) {
    if (depth > limit) return;
    from = countable(text, from);
    if (parent >= 0) times = text.count(from.state);
    text.children(from.state, kContinuations, children_);
    for (const auto& child : children_) {
      const double p = probability * share(child.count, times) * trust(options_->trust, matched + depth - 1);
      if (p < options_->min_probability || p <= 0) continue;
      leaves_.push_back({{child.token, parent, p}, {child.state, from.length + 1}, depth});
      std::push_heap(leaves_.begin(), leaves_.end(), less);
    }
  };
  expand(context, occurrences, -1, 1, 1);
  while (!leaves_.empty() && static_cast<int>(tried_.size()) < budget) {
    std::pop_heap(leaves_.begin(), leaves_.end(), less);
    const Leaf leaf = leaves_.back();
    leaves_.pop_back();
    const int node = static_cast<int>(tried_.size());
    tried_.push_back(leaf.node);
    expand(leaf.context, 0, node, leaf.node.probability, leaf.depth + 1);
  }
}

}  // namespace speclab
