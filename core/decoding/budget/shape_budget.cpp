#include "core/decoding/budget/shape_budget.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr double kDraftMemory = .97;  // decay factor of old observations in each step with a draft
// A first guess counts as this many observations. There are three kinds of classes, from wide to narrow:
// tokens of equal rank; of equal rank and depth; of equal rank, depth and evidence. The first guess of a
// narrower class is the estimate of the next wider class.
constexpr double kOfRank = 4, kOfDepth = 6, kOfEvidence = 6;

}  // namespace

ShapeBudget::ShapeBudget(std::shared_ptr<const StepCosts> costs, TreeShape shape, Settings settings)
    : costs_(std::move(costs)), shape_(std::move(shape)), settings_(settings) {
  SPECLAB_CHECK(costs_ && !costs_->target_ns.empty(), "a budget without costs");
  SPECLAB_CHECK(!settings_.by_draft_model || !costs_->draft_ns.empty(), "a budget without costs of a draft");
  const auto nodes = static_cast<std::size_t>(shape_.nodes());
  parent_.assign(nodes, -1);
  depth_.assign(nodes, 0);
  rank_.assign(nodes, 0);
  for (int node = 0; node < shape_.nodes(); ++node) {
    for (int rank = 0; rank < shape_.children(node); ++rank) {
      const auto child = static_cast<std::size_t>(shape_.first_child(node) + rank);
      parent_[child] = node;
      depth_[child] = depth_[static_cast<std::size_t>(node)] + 1;
      rank_[child] = rank;
    }
  }
  chain_ = shape_.nodes() == shape_.depth() + 1;
  probability_.assign(nodes, 1);
  order_.reserve(nodes);
  chosen_.assign(nodes, 0);
  fed_.assign(static_cast<std::size_t>(shape_.depth()) + 1, 0);
  begin();
}

void ShapeBudget::begin() {
  own_.assign(kDepths * kRanks * kEvidence, {});
  by_depth_.assign(kDepths * kRanks, {});
  by_rank_.assign(kRanks, {});
  trials_.begin();
}

double ShapeBudget::acceptance(int depth, int rank) const {
  const int r = std::min(rank, kRanks - 1), d = std::min(depth - 1, kDepths - 1);
  const auto of_depth = static_cast<std::size_t>(d * kRanks + r);
  const double any = by_rank_[static_cast<std::size_t>(r)].over(settings_.first_guess / (1 << r), kOfRank);
  const double at_depth = by_depth_[of_depth].over(any, kOfDepth);
  if (evidence_ == 0) return at_depth;
  return own_[of_depth * kEvidence + static_cast<std::size_t>(evidence_)].over(at_depth, kOfEvidence);
}

// The first forward of the draft model also reads the tokens that the model has missed.
double ShapeBudget::level_ns(int level, int fed) const {
  if (fed == 0) return 0;
  if (!level_times_.empty()) return level_times_[static_cast<std::size_t>(level)];
  return draft_factor_ * costs_->draft(level == 0 ? fed + behind_ : fed);
}

int ShapeBudget::choose(int depth, int behind, int evidence) {
  evidence_ = std::clamp(evidence, 0, kEvidence - 1);
  behind_ = std::max(behind, 0);
  depth = std::min(depth, shape_.depth());
  std::fill(chosen_.begin(), chosen_.end(), 0);
  chosen_depth_ = 0;
  order_.clear();
  for (int node = 1; node < shape_.nodes(); ++node) {
    const auto at = static_cast<std::size_t>(node);
    if (depth_[at] > depth) break;  // nodes are numbered level by level
    // A later sibling counts as no better than the sibling before it, because siblings are drafted in order.
    const double above = probability_[static_cast<std::size_t>(parent_[at])];
    probability_[at] = above * acceptance(depth_[at], rank_[at]);
    if (rank_[at] > 0) probability_[at] = std::min(probability_[at], probability_[at - 1]);
    order_.push_back(node);
  }
  if (order_.empty()) return 0;
  if (!chain_) {  // the nodes of a chain are already sorted
    std::sort(order_.begin(), order_.end(), [&](int a, int b) {
      const double x = probability_[static_cast<std::size_t>(a)],
                   y = probability_[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    });
  }
  // The first n nodes in this order contain the parents and the earlier siblings of all of them. A level
  // costs a forward of the draft, so the best n is sought for each depth of the tree.
  const double plain_ns = costs_->target(1);
  double best_rate = 0, best_ns = 0, best_tokens = 0;
  int best = 0, best_depth = 0;
  for (int deepest = chain_ ? depth : 1; deepest <= depth; ++deepest) {
    std::fill(fed_.begin(), fed_.end(), 0);
    double tokens = 1, draft_ns = 0;
    int n = 0;
    for (const int node : order_) {
      const auto at = static_cast<std::size_t>(node);
      if (depth_[at] > deepest) continue;
      if (settings_.by_draft_model && rank_[at] == 0) {
        const int level = depth_[at] - 1;
        int& fed = fed_[static_cast<std::size_t>(level)];
        draft_ns += level_ns(level, fed + 1) - level_ns(level, fed);
        ++fed;
      }
      tokens += probability_[at];
      const double ns = costs_->target(++n + 1) + draft_ns;
      if (tokens / ns < best_rate) continue;
      best_rate = tokens / ns, best_ns = ns, best_tokens = tokens;
      best = n, best_depth = deepest;
    }
  }
  if (best_rate >= 1 / plain_ns) trials_.step_in_use();
  else if (!trials_.try_now(plain_ns, best_ns - best_tokens * plain_ns, settings_.trial_steps)) return 0;
  int left = best;
  for (const int node : order_) {
    if (left == 0) break;
    const auto at = static_cast<std::size_t>(node);
    if (depth_[at] > best_depth) continue;
    ++chosen_[static_cast<std::size_t>(parent_[at])];
    chosen_depth_ = std::max(chosen_depth_, depth_[at]);
    --left;
  }
  return best;
}

void ShapeBudget::reached(int depth, int children, int accepted) {
  if (depth == 0 && children > 0) {
    for (RunningShare& share : by_rank_) share.fade(kDraftMemory);
    for (RunningShare& share : by_depth_) share.fade(kDraftMemory);
    for (auto at = static_cast<std::size_t>(evidence_); at < own_.size(); at += kEvidence)
      own_[at].fade(kDraftMemory);  // what was learned with other evidence stays
  }
  const int d = std::min(depth, kDepths - 1);
  for (int rank = 0; rank < children; ++rank) {
    const int r = std::min(rank, kRanks - 1);
    const auto of_depth = static_cast<std::size_t>(d * kRanks + r);
    own_[of_depth * kEvidence + static_cast<std::size_t>(evidence_)].add(rank == accepted);
    by_depth_[of_depth].add(rank == accepted);
    by_rank_[static_cast<std::size_t>(r)].add(rank == accepted);
  }
}

void ShapeBudget::observe_tree(const TokenTree& tree, std::span<const int> path) {
  int node = 0;
  for (std::size_t depth = 0; depth <= path.size(); ++depth) {
    tree.children(node, children_);
    const int next = depth < path.size() ? path[depth] : -1;
    const auto found = std::find(children_.begin(), children_.end(), next);
    reached(static_cast<int>(depth), static_cast<int>(children_.size()),
            found == children_.end() ? -1 : static_cast<int>(found - children_.begin()));
    node = next;
  }
}

void ShapeBudget::observe_chain(int drafted, int accepted) {
  for (int depth = 0; depth < std::min(drafted, accepted + 1); ++depth)
    reached(depth, 1, depth < accepted ? 0 : -1);
}

}  // namespace speclab
