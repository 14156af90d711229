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
  mixed                 ///< anything else; no closed form is known
};
ChildrenDrawn how_drawn(std::span<const NodeTest::Child> children);

/// The largest probability with which a lossless verifier emits one of these children, averaged over their
/// draw:
///   copied: p(C), the target's mass on the children;
///   iid and without replacement: 1 + min over sets H of (p(H) - P(all drafts in H)), as best_acceptance();
///   mixed: absent.
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
