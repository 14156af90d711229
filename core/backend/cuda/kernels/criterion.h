#pragma once

#include <cstring>

#include "core/backend/cuda/kernels/law.h"
#include "core/backend/plan.h"
#include "core/base/exp_log.h"

// Computes what acceptance rules need from whole rows: the set of accepted tokens
// (core/decoding/rules/accepted_set.h) and the constant M of the envelope (rules_classical.cpp). In textbook
// rejection sampling the envelope is M q >= p with M = max p / q, and a token drawn from q is accepted with
// probability p / (M q). The results have the same bits as on the host. Functions with a LawSpace as an
// argument must be called by all threads of a block together.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// The same as Distribution::entropy() on the host.
SPECLAB_DEVICE double entropy_of(const LawSpace& space, const LawRow& row, int vocab) {
  if (row.one_hot >= 0) return 0;
  const double sum = sum_row(space, vocab,
                             Entries{[&](int x) { return row.load(x); },
                                     [](int, float weight) {
                                       const auto w = static_cast<double>(weight);
                                       return w * exact_log(w);
                                     }});
  return exact_entropy(row.sum, sum);
}

/// The tokens of a row that a criterion accepts. The host's counterpart is rules::Accepted.
struct AcceptedSet {
  CriterionForm form;
  LawRow seen;  ///< the row that the criterion looks at
  int vocab;
  int best = -1;   ///< the token that is always accepted; -1: none
  double bar = 0;  ///< the weight in `seen` that an accepted token needs, see weight_to_reach()

  SPECLAB_DEVICE AcceptedSet(const LawSpace& space, const CriterionForm& criterion, const LawRow& p,
                             const LawRow& row, int tokens)
      : form(criterion), seen(row), vocab(tokens) {
    if (form.always_best) best = p.argmax(space, vocab);
    const double entropy = form.typical ? entropy_of(space, seen, vocab) : 0;
    const double largest = compares_with_best(form) ? weight(seen.argmax(space, vocab)) : 0;
    bar = weight_to_reach(form, entropy, seen.sum, largest);
  }
  SPECLAB_DEVICE double weight(int x) const { return seen.one_hot >= 0 ? seen.prob(x) : seen.weight(x); }
  /// Returns weight(x) without reading memory. `loaded` is the weight of x; a one-hot row ignores it.
  SPECLAB_DEVICE double weight_of(int x, float loaded) const {
    return seen.one_hot >= 0 ? seen.prob(x) : static_cast<double>(loaded);
  }
  /// True if the token meets every condition except the one on its rank, which is not tested here.
  SPECLAB_DEVICE bool meets(int x) const { return meets(x, weight(x)); }
  /// The same for a token whose weight is w.
  SPECLAB_DEVICE bool meets(int x, double w) const {
    return x == best || meets_criterion(form, bar, best, x, w);
  }
  SPECLAB_DEVICE bool accepts(const LawSpace& space, int x) const {
    if (x == best || !meets(x) || form.ranks <= 0 || form.ranks >= vocab) return meets(x);
    const double w = weight(x);
    const double before = sum_row(space, vocab,
                                  Entries{[&](int i) { return seen.one_hot >= 0 ? 0.0f : seen.load(i); },
                                          [&](int i, float loaded) {
                                            const double other = weight_of(i, loaded);
                                            return other > w || (other == w && i < x) ? 1.0 : 0.0;
                                          }});
    return before < form.ranks;
  }
};

/// The weights of one token in two rows.
struct TwoWeights {
  float p, q;
};

/// Returns 1 / M of the envelope M q >= p: the minimum of q / p over the support of p.
SPECLAB_DEVICE double inverse_envelope(const LawSpace& space, const LawRow& p, const LawRow& q, int vocab) {
  if (q.one_hot >= 0) return p.prob(q.one_hot) >= 1 ? 1 : 0;
  if (p.one_hot >= 0) return q.prob(p.one_hot);
  simt::u64 least = 0;  // inverted bits of the least ratio; ratios are not negative, so their bits are in the
                        // same order as the ratios
  visit_row(
      vocab, [&](int x) { return TwoWeights{p.load(x), q.load(x)}; },
      [&](int, const TwoWeights& of) {
        const auto w = static_cast<double>(of.p);
        if (!(w > 0)) return;
        const double ratio = static_cast<double>(of.q) / w;
        simt::u64 bits;
        std::memcpy(&bits, &ratio, sizeof bits);
        if (~bits > least) least = ~bits;
      });
  least = block_largest(space.keys(), least);
  if (least == 0) return 1;  // p has no support in this row
  const simt::u64 bits = ~least;
  double ratio;
  std::memcpy(&ratio, &bits, sizeof ratio);
  return inverse_envelope_of(ratio, p.sum, q.sum);
}

/// Returns the probability that a token drawn from q is accepted under the envelope, p / (M q). `inverse`:
/// 1/M.
SPECLAB_DEVICE double under_envelope(const LawRow& p, const LawRow& q, int token, double inverse) {
  return inverse > 0 ? envelope_acceptance(p.prob(token), q.prob(token), inverse) : 0;
}

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
