#pragma once

#include <optional>
#include <span>

#include "core/decoding/rules/accept.h"
#include "core/theory/verifier_bounds.h"

/// Computes the bound of verifier_bounds.h for one position of a real draft. The rows of such a draft cover a
/// whole vocabulary, and its children were drawn as strategies draw them.
namespace speclab::theory {

/// How the children of one node were drawn, as far as their rows tell (core/decoding/rules/sibling_draws.h).
enum class ChildrenDrawn {
  copied,               ///< no child was drawn; each has no row or a one-hot row
  iid,                  ///< all from one row
  without_replacement,  ///< each child from the row of the child before it, without that child's token
  independent,          ///< independent draws from several rows, or independent draws beside copies
  mixed                 ///< anything else; no bound is known
};
ChildrenDrawn how_drawn(std::span<const NodeTest::Child> children);
/// True if the child was not drawn: it has no row, or a one-hot row.
inline bool is_copied(const NodeTest::Child& child) { return child.q == nullptr || child.q->one_hot(); }

/// An upper bound on the probability with which a lossless verifier emits one of these children, averaged
/// over their draw. It is 1 + min over sets H of (p(H) - P(all children in H)), as in best_acceptance(). A
/// verifier reaches this minimum, so it is the optimum. By the way in which the children were drawn:
///   copied: p(C), the target's mass on the children;
///   iid, without replacement: the minimum is at a set of tokens with the smallest p/q;
///   independent: P(all children in H) is the product of q_j(H) over the drawn children j if H contains all
///   copied tokens, and 0 if it does not. Each set H gives an upper bound. Not all sets are tried. Those that
///   are tried contain the copied tokens, the tokens with p = 0, and the tokens with the smallest p/q_j for
///   one j or with the smallest p / sum_j q_j. If all draws are from one row, the result is the optimum. With
///   several rows, the minimum may be at another set, so the result may lie above the optimum;
///   mixed: absent.
/// The bound holds if neither the number of children nor the copied tokens depend on which tokens were drawn
/// as children of this node. If children are drawn with common Gumbel noise, P(all children in H) is not
/// less than the product, because of Harris' inequality. So the bound holds for them, too.
/// Draws without replacement are computed as a race: each token x arrives at a random time with the rate
/// q(x), and with k children the first k tokens to arrive are the draws. The probability that they are in H
/// is an integral over the time at which the first token outside H arrives. The integral is exact to 1e-6. In
/// a row with more than kMostSingleTokens tokens, each group of tokens with a small q counts as one token. In
/// a long row only some of the sets H are tried. Both make the bound a little larger (by less than .002 in
/// tests), so it stays a bound.
std::optional<double> position_bound(const Distribution& p, std::span<const NodeTest::Child> children);

/// In a row with more tokens than this, tokens with a small q are grouped for draws without replacement.
inline constexpr std::size_t kMostSingleTokens = 4096;

}  // namespace speclab::theory
