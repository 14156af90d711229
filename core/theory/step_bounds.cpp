#include "core/theory/step_bounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/theory/position_bound.h"

namespace speclab::theory {
namespace {

/// The residual R of a node: p, from which each failed child takes its part.
class Residual {
 public:
  explicit Residual(const Distribution& p) : p_(&p) {}
  double prob(Token x) const { return law_.empty() ? p_->prob(x) : law_[static_cast<std::size_t>(x)]; }
  /// Replaces R by (rho R - q)+, normalised, and returns the sum of (rho R - q)+. q null: all mass on
  /// `one_hot`. Leaves R as it is if the sum is 0.
  double subtract(double rho, const Distribution* q, Token one_hot) {
    if (law_.empty()) p_->probabilities(law_);
    next_.resize(law_.size());
    double sum = 0;
    for (std::size_t x = 0; x < law_.size(); ++x) {
      const auto token = static_cast<Token>(x);
      const double of_q = q != nullptr ? q->prob(token) : token == one_hot ? 1.0 : 0.0;
      sum += next_[x] = std::max(0.0, rho * law_[x] - of_q);
    }
    if (!(sum > 0)) return 0;
    for (double& weight : next_) weight /= sum;
    std::swap(law_, next_);
    return sum;
  }
  /// R without the token, normalised.
  void remove(Token token) {
    if (law_.empty()) p_->probabilities(law_);
    const double left = 1 - law_[static_cast<std::size_t>(token)];
    if (!(left > 0)) return;
    law_[static_cast<std::size_t>(token)] = 0;
    for (double& weight : law_) weight /= left;
  }

 private:
  const Distribution* p_;
  std::vector<double> law_, next_;  // law_ is empty while R is p
};

/// One drafted tree with its rows.
struct Judged {
  const Draft& draft;
  const TargetRows& rows;
  std::vector<char> counts;  ///< [nodes]: no end token up to this node

  Judged(const Draft& drafted, const TargetRows& of_target, std::span<const Token> eos)
      : draft(drafted), rows(of_target), counts(static_cast<std::size_t>(drafted.tree.drafted()) + 1, 1) {
    for (int node = 1; node <= draft.tree.drafted(); ++node) {
      const bool ends = std::ranges::find(eos, draft.tree.token(node)) != eos.end();
      counts[static_cast<std::size_t>(node)] =
          !ends && counts[static_cast<std::size_t>(draft.tree.parent(node))] != 0 ? 1 : 0;
    }
  }
  /// P(a child is accepted if the law is R and a path to its parent is kept with rho).
  double pass(const Residual& law, double rho, int child) const {
    const Token token = draft.tree.token(child);
    const Distribution* q = draft.q_at(child);
    return std::min(1.0, rho * law.prob(token) / (q != nullptr ? q->prob(token) : 1.0));
  }
  /// Depth up to which the tokens of the path to the node count.
  int counted_depth(int node) const {
    while (node > 0 && counts[static_cast<std::size_t>(node)] == 0) node = draft.tree.parent(node);
    return draft.tree.depth(node);
  }
};

void chain_bounds(const Judged& judged, StepBounds& out) {
  double token = 1, path = 1;
  for (int node = 1; node <= judged.draft.tree.drafted(); ++node) {
    const Residual law(*judged.rows(node - 1).p);
    token *= judged.pass(law, 1, node);
    path = judged.pass(law, path, node);
    if (judged.counts[static_cast<std::size_t>(node)] == 0) break;
    out.by_token.push_back(token);
    out.by_path.push_back(path);
  }
}

/// Adds to `kept` what the walk from `node` keeps, if the walk reaches `node` with probability `reached`.
void walk(const Judged& judged, int node, double reached, std::vector<double>& kept) {
  std::vector<int> children;
  judged.draft.tree.children(node, children);
  Residual law(*judged.rows(node).p);
  for (std::size_t i = 0; i < children.size() && reached > 0; ++i) {
    const int child = children[i];
    const double pass = judged.pass(law, 1, child);
    if (judged.counts[static_cast<std::size_t>(child)] != 0) {
      kept[static_cast<std::size_t>(judged.draft.tree.depth(child)) - 1] += reached * pass;
      walk(judged, child, reached * pass, kept);
    }
    reached *= 1 - pass;
    if (i + 1 == children.size()) break;
    const Distribution* q = judged.draft.q_at(child);
    if (q == nullptr) law.remove(judged.draft.tree.token(child));
    else law.subtract(1, q, -1);
  }
}

/// The traversal of the paths below `node`, which has the given rho. `alive` is the probability that all
/// earlier paths have failed. Adds to ends[i] the probability that the accepted path ends at node i.
void traverse(const Judged& judged, int node, double rho, double& alive, std::vector<double>& ends) {
  std::vector<int> children;
  judged.draft.tree.children(node, children);
  Residual law(*judged.rows(node).p);
  for (const int child : children) {
    if (!(alive > 0)) return;
    traverse(judged, child, judged.pass(law, rho, child), alive, ends);
    const double left = law.subtract(rho, judged.draft.q_at(child), judged.draft.tree.token(child));
    rho = left > 0 ? left / (left + (1 - rho)) : rho < 1 ? 0 : 1;
  }
  const double ends_here = alive * (node == 0 ? 1 : rho);
  ends[static_cast<std::size_t>(node)] += ends_here;
  alive -= ends_here;
}

/// The bound at a node with these children.
std::optional<double> best_at(const Draft& draft, const Distribution& p, std::span<const int> nodes) {
  std::vector<NodeTest::Child> children;
  for (const int node : nodes) {
    children.push_back({draft.tree.token(node), draft.q_at(node)});
    if (std::ranges::find(draft.copied_too, node) != draft.copied_too.end())
      children.push_back({draft.tree.token(node), nullptr});
  }
  if (how_drawn(children) == ChildrenDrawn::independent && !draft.copies_ignore_draws &&
      std::ranges::any_of(children, is_copied))
    return std::nullopt;
  return position_bound(p, children);
}

bool is_chain(const TokenTree& tree) {
  for (int node = 1; node <= tree.drafted(); ++node) {
    if (tree.parent(node) != node - 1) return false;
  }
  return true;
}

}  // namespace

std::optional<PairedOutcome> paired_outcome(const Draft& draft, const TargetRows& rows, const Coins& coins,
                                            std::int64_t position, std::span<const Token> eos) {
  if (!is_chain(draft.tree)) return std::nullopt;
  const Judged judged(draft, rows, eos);
  PairedOutcome out;
  for (int node = 1; node <= draft.tree.drafted(); ++node) {
    const double pass = judged.pass(Residual(*rows(node - 1).p), 1, node);
    if (!coins.bernoulli(pass, {position, Purpose::accept, static_cast<std::uint32_t>(node)})) break;
    out.by_token = node;
  }
  Acceptance block;
  block.want_expected = false;
  accept(find_acceptance_rule("block"), {}, draft, rows, coins, position, block);
  out.by_path = static_cast<int>(block.path.size());
  out.by_token = judged.counted_depth(out.by_token);
  out.by_path = judged.counted_depth(out.by_path);
  return out;
}

double StepBounds::tokens(const std::vector<double>& kept) {
  return std::accumulate(kept.begin(), kept.end(), 1.0);
}

StepBounds step_bounds(const Draft& draft, const TargetRows& rows, std::span<const int> accepted,
                       std::span<const Token> eos) {
  StepBounds out;
  const Judged judged(draft, rows, eos);
  const TokenTree& tree = draft.tree;
  out.chain = is_chain(tree);
  if (out.chain) {
    chain_bounds(judged, out);
  } else {
    const auto depth = static_cast<std::size_t>(tree.max_depth());
    out.by_token.assign(depth, 0.0);
    walk(judged, 0, 1, out.by_token);
    out.by_path.assign(depth, 0.0);
    std::vector<double> ends(static_cast<std::size_t>(tree.drafted()) + 1, 0.0);
    double alive = 1;
    traverse(judged, 0, 1, alive, ends);
    for (int node = 0; node <= tree.drafted(); ++node) {
      const int counted = judged.counted_depth(node);
      for (int i = 0; i < counted; ++i)
        out.by_path[static_cast<std::size_t>(i)] += ends[static_cast<std::size_t>(node)];
    }
  }
  std::vector<int> nodes;
  for (std::size_t i = 0; i <= accepted.size(); ++i) {
    const int node = i == 0 ? 0 : accepted[i - 1];
    if (judged.counts[static_cast<std::size_t>(node)] == 0) break;
    tree.children(node, nodes);
    if (nodes.empty()) break;
    out.best.push_back(best_at(draft, *rows(node).p, nodes));
  }
  return out;
}

}  // namespace speclab::theory
