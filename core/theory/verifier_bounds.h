#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/theory/predictions.h"

/// Bounds for verifiers: how many drafted tokens any lossless verifier can accept, when the target's row p
/// and the draft's row q are known. A rule that reaches its bound cannot be improved on these rows.
///
/// All functions take rows of probabilities over one vocabulary: p(x), q(x) or both. They throw Error if the
/// rows differ in length, if a number is negative or not finite, if a row does not sum to 1 within 1e-6, or
/// if k is not in 1..1000.
namespace speclab::theory {

/// How the k drafted children of one node are drawn.
enum class DraftedSet {
  iid,                 ///< all from q
  without_replacement  ///< each from q without the earlier draws, renormalised; fewer than k if q has fewer
                       ///< tokens
};

/// Largest vocabulary of the bounds for draws without replacement, which sum over all sets of tokens. With
/// more tokens these bounds throw Error.
inline constexpr int kMostTokensWithoutReplacement = 20;

/// sum_x min(p(x), q(x)): the largest acceptance of one drafted token (Leviathan et al. 2023, Section 3).
/// The rule "rejection" reaches it.
double row_overlap(std::span<const double> p, std::span<const double> q);

/// The acceptance of one drafted token by the rule "coupled", with which draft and target share their Gumbel
/// noise (Daliri, Musco, Suresh, arXiv 2408.07978): sum_x 1 / sum_y max(p(y)/p(x), q(y)/q(x)).
double coupling_acceptance(std::span<const double> p, std::span<const double> q);

/// P(all drafted children are in H) for each set H of the first 0, 1, ..., V tokens of `order`, [V + 1]. V is
/// the size of the vocabulary.
std::vector<double> all_drafts_within(std::span<const double> q, int k, DraftedSet drawn,
                                      std::span<const int> order);

/// The largest probability with which a lossless verifier emits one of k drafted children of a node:
///   1 + min over sets H of tokens of (p(H) - P(all k drafts are in H)),
/// where p(H) is the sum of p over H. This is the value of an optimal transport (Sun et al. 2023, arXiv
/// 2310.15141) by its dual (Hu et al. 2025, arXiv 2502.18779). The minimum is at a set of the tokens with the
/// smallest p/q, so V + 1 sets are enough. Tests compare it with all 2^V sets and with a linear program.
double best_acceptance(std::span<const double> p, std::span<const double> q, int k, DraftedSet drawn);

/// The largest E[tau] of a lossless verifier of a chain of gamma tokens, when the rows of all positions are p
/// and q. The verifier sees the rows on the drafted path. With rho_0 = 1 and rho_i = min(1, rho_{i-1}
/// p(x_i)/q(x_i)), this E[tau] is 1 + sum over i = 1..gamma of E[rho_i] over x_1..x_gamma ~ q (Sun et al.
/// 2024, arXiv 2403.10444). The rule "block" reaches it. Two values of rho whose difference is rounding count
/// as one. Throws Error if rho takes too many different values.
double best_chain_tokens(std::span<const double> p, std::span<const double> q, int gamma);

/// Rows of one position, for `speclab theory`.
struct RowInputs {
  std::vector<double> p, q;
  int k = 1;
  std::optional<int> gamma;
};

/// The values of the functions above, in this order. The word in parentheses is Prediction::quantity:
///   row_overlap (alpha), coupling_alpha (alpha), best_alpha_iid (alpha), best_alpha_without_replacement
///   (alpha; absent above kMostTokensWithoutReplacement tokens), best_chain_tau (tau; absent without gamma).
std::vector<Prediction> verifier_bounds(const RowInputs& rows);

}  // namespace speclab::theory
