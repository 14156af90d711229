#pragma once

#include <algorithm>

#include "core/decoding/rows/distribution.h"

/// How the children of a node were drawn, as far as their rows q tell. Rules for several children need this:
/// some are exact only for independent draws.
namespace speclab::rules {

/// True if the two rows are equal. Children whose rows are equal were drawn independently from one row: after
/// a draw without replacement, the next row has no mass on the drawn token.
inline bool same_row(const Distribution& a, const Distribution& b) {
  if (&a == &b) return true;
  if (a.one_hot() || b.one_hot()) return a.one_hot() && b.one_hot() && a.argmax() == b.argmax();
  return a.sum() == b.sum() && std::ranges::equal(a.weights(), b.weights());
}

/// True if `later` is `earlier` without `token`, renormalised: the row of the next draw without replacement.
inline bool drawn_without(const Distribution& earlier, Token token, const Distribution& later) {
  if (later.prob(token) > 0 || !(earlier.prob(token) < 1)) return false;
  constexpr double kRounding = 1e-5;  // weights are floats
  const double left = 1 - earlier.prob(token);
  for (Token x = 0; x < earlier.vocab(); ++x) {
    const double expected = x == token ? 0 : earlier.prob(x) / left;
    const double found = later.prob(x);
    if (found > expected * (1 + kRounding) || found < expected * (1 - kRounding)) return false;
  }
  return true;
}

}  // namespace speclab::rules
