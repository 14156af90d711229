#include "core/decoding/budget/draft_budget.h"

#include <algorithm>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr int kRanks = 4, kEvidence = 8, kConfidenceClasses = 4;  // higher ones count as the highest
constexpr double kMemory = .98;  // decay factor of old observations at each new one
constexpr double kWeight = 4;    // observations that a first guess counts as

/// The first guess of an acceptance, before anything was seen: 1/2 for the first token of a copy, 3/4 for the
/// later ones. A sibling is guessed to have half the acceptance of the one before it.
double first_guess(bool direct, int rank) { return (direct ? .5 : .75) / (1 << rank); }

constexpr std::size_t kWide = 2 * kRanks;

}  // namespace

DraftBudget::DraftBudget(std::shared_ptr<const StepCosts> costs) : costs_(std::move(costs)) {
  SPECLAB_CHECK(costs_ && !costs_->target_ns.empty(), "a budget without costs");
  begin();
}

void DraftBudget::begin() {
  classes_.assign(kWide * kEvidence * kConfidenceClasses, {});
  wide_.assign(kWide, {});
  tree_.reset(0);
}

std::size_t DraftBudget::class_of(const Draft& draft, int node, int rank) const {
  const bool direct = draft.tree.parent(node) == 0;
  const float confidence = draft.confidence[static_cast<std::size_t>(node)];
  const int level = confidence < 0 ? 0
                                   : std::clamp(static_cast<int>(confidence * kConfidenceClasses), 0,
                                                kConfidenceClasses - 1);
  const int evidence = std::clamp(draft.evidence, 0, kEvidence - 1);
  const int wide = (direct ? 0 : kRanks) + rank;
  return static_cast<std::size_t>((wide * kEvidence + evidence) * kConfidenceClasses + level);
}

double DraftBudget::acceptance(std::size_t of_class) const {
  const std::size_t index = of_class / (kEvidence * kConfidenceClasses);
  const Counts &wide = wide_[index], &own = classes_[of_class];
  const double guess = first_guess(index < kRanks, static_cast<int>(index) % kRanks);
  const double of_wide = (wide.accepted + kWeight * guess) / (wide.seen + kWeight);
  return (own.accepted + kWeight * of_wide) / (own.seen + kWeight);
}

void DraftBudget::limit(Draft& draft, int further_rows) {
  const int size = draft.tree.size();
  SPECLAB_CHECK(draft.tree.drafted() == size - 1, "a budget for a draft with {} probes",
                size - 1 - draft.tree.drafted());
  tree_ = draft.tree;
  class_of_.assign(static_cast<std::size_t>(size), 0);
  probability_.assign(static_cast<std::size_t>(size), 1);
  ranks_.assign(static_cast<std::size_t>(size), 0);
  order_.clear();
  double tokens = 1;
  for (int node = 1; node < size; ++node) {
    const auto at = static_cast<std::size_t>(node), parent = static_cast<std::size_t>(tree_.parent(node));
    class_of_[at] = class_of(draft, node, std::min(ranks_[parent]++, kRanks - 1));
    probability_[at] = probability_[parent] * acceptance(class_of_[at]);
    if (node <= draft.must_keep) {
      tokens += probability_[at];
      continue;
    }
    SPECLAB_CHECK(draft.q_at(node) == nullptr, "a budget for a draft whose token {} was drawn", node);
    order_.push_back(node);
  }
  // A child is never more probable than its parent, and comes after it. So the first n nodes in this order
  // contain all of their parents that are not kept anyway.
  std::sort(order_.begin(), order_.end(), [&](int a, int b) {
    const double x = probability_[static_cast<std::size_t>(a)], y = probability_[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  const int rows = 1 + draft.must_keep + further_rows;
  std::size_t best = 0;
  double best_rate = tokens / costs_->target(rows);
  for (std::size_t n = 1; n <= order_.size(); ++n) {
    tokens += probability_[static_cast<std::size_t>(order_[n - 1])];
    const double rate = tokens / costs_->target(rows + static_cast<int>(n));
    if (rate >= best_rate) best = n, best_rate = rate;
  }
  if (best == order_.size()) return;
  keep_.assign(static_cast<std::size_t>(size), 0);
  std::fill_n(keep_.begin(), 1 + draft.must_keep, 1);
  for (std::size_t n = 0; n < best; ++n) keep_[static_cast<std::size_t>(order_[n])] = 1;
  draft.keep(keep_);
}

void DraftBudget::observe(TokenSpan emitted) {
  int node = 0;
  for (const Token token : emitted) {
    tree_.children(node, children_);
    int next = 0;
    for (const int child : children_) {
      const bool accepted = next == 0 && tree_.token(child) == token;
      const std::size_t of_class = class_of_[static_cast<std::size_t>(child)];
      for (Counts* counts : {&classes_[of_class], &wide_[of_class / (kEvidence * kConfidenceClasses)]}) {
        counts->seen = kMemory * counts->seen + 1;
        counts->accepted = kMemory * counts->accepted + (accepted ? 1 : 0);
      }
      if (accepted) next = child;
    }
    if (next == 0) return;
    node = next;
  }
}

}  // namespace speclab
