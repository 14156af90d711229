#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/theory/predictions.h"

/// Closed forms for a cascade of several drafts (Chen et al. 2023, "Cascade Speculative Drafting", arXiv
/// 2312.11462, Section 4 and Appendix). Like the forms of core/theory/chain.h, they assume that every tested
/// token is accepted with a fixed probability, independently, and that rows are free (t(n) = 1). c1 is the
/// time of a forward of draft 1 / the time of a target forward, one row each; c2 is the same ratio for
/// draft 2.
///
/// EWIF (expected walltime improvement factor) = expected tokens per step / time of a step in target
/// forwards. All functions except full_chain() throw Error for probabilities outside [0, 1], for negative
/// costs, and for numbers of tokens outside [0, kMaxGamma] or, in a MatrixCascade, outside [0, kMostTokens].
/// The functions of a MatrixCascade also throw if it has fewer than 1 or more than 16 drafts, and if a list
/// has the wrong size.
namespace speclab::theory {

/// Vertical cascade: draft 1 makes the chain for the target in `rounds` rounds. In each round it reviews k
/// tokens of draft 2 and adds one token. The target accepts a token of the chain with probability alpha1.
/// Draft 1 accepts a token of draft 2 with probability alpha2.
struct VerticalCascade {
  double alpha1 = 0, alpha2 = 0;
  int rounds = 1, k = 1;
  double c1 = 0, c2 = 0;
};
/// phi(x) = 1 + (x - 1)(1 - (alpha2 x)^(k+1)) / (1 - alpha2 x): the probability generating function of the
/// number of tokens of a round, which is geometric and capped at k + 1. `x` is in [0, 1].
double round_generating_function(double alpha2, int k, double x);
/// E[tau] = (1 - alpha1 phi(alpha1)^n) / (1 - alpha1) with n rounds; 1 + n (mean tokens of a round) at alpha1
/// = 1.
double vertical_tokens(const VerticalCascade& cascade);
/// EWIF = E[tau] / (1 + n c1 + n k c2).
double vertical_improvement(const VerticalCascade& cascade);

/// Horizontal cascade: the chain has k1 tokens of draft 1, then k2 of draft 2. The target accepts a token of
/// draft i with probability alpha_i.
struct HorizontalCascade {
  double alpha1 = 0, alpha2 = 0;
  int k1 = 1, k2 = 1;
  double c1 = 0, c2 = 0;
};
/// E[tau] = (1 - alpha1^(k1+1)) / (1 - alpha1) + alpha1^k1 alpha2 (1 - alpha2^k2) / (1 - alpha2).
double horizontal_tokens(const HorizontalCascade& cascade);
/// EWIF = E[tau] / (1 + k1 c1 + k2 c2).
double horizontal_improvement(const HorizontalCascade& cascade);

/// A cascade of n drafts by the matrix K (Algorithm 1 of the paper), from the largest draft to the smallest.
/// Chains have the length that K says, as in strategies/cascade.cpp. In the paper's formula for the vertical
/// cascade a chain has a given number of rounds instead, and so a random length. The two models agree if
/// alpha2 is 0 or 1, and for horizontal cascades.
struct MatrixCascade {
  static constexpr int kMostTokens = 1000;  ///< of one draft in a chain
  int drafts = 1;                           ///< n
  /// [n, n]: row 0: tokens of each draft in the chain for the target; row i: in the chain that draft i
  /// reviews (the first draft is draft 1). Entries below the diagonal are not read.
  std::vector<int> k;
  /// [n, n]: row 0: probability that the target accepts a token of each draft; row i: probability that draft
  /// i keeps a token of each draft in its review.
  std::vector<double> kept;
  std::vector<double> c;  ///< [n]: time of a forward of each draft; 0 for a draft that copies
};
/// Row 0 of K: the number of tokens of each draft in a full chain for the target, [n].
std::vector<int> full_chain(const MatrixCascade& cascade);
/// E[tau] = 1 + sum_i prod_{j <= i} a_j over the tokens i of the chain; a_j (row 0 of `kept`) is P(accept j).
/// `chain`: tokens of each draft, as from full_chain(), or fewer if a draft left places empty.
double matrix_tokens(const MatrixCascade& cascade, std::span<const int> chain);
/// Expected forwards of each draft for this chain, [n]. A draft that hands in r tokens makes rounds until it
/// has them. In a round with m tokens missing, the draft reviews the chain of its row of K, cut to m - 1
/// tokens, and adds one token.
std::vector<double> matrix_forwards(const MatrixCascade& cascade, std::span<const int> chain);
/// Time of all drafts for this chain: the sum of forwards times c.
double matrix_draft_time(const MatrixCascade& cascade, std::span<const int> chain);
/// EWIF = E[tau] / (1 + the time of all drafts) for full chains.
double matrix_improvement(const MatrixCascade& cascade);

/// The inputs of `speclab theory`. With `rounds` the cascade is vertical: draft 1 makes `rounds` reviews of
/// `gamma2` tokens. Otherwise it is horizontal: `gamma` is k1, and `gamma2` is k2.
struct CascadeInputs {
  std::optional<double> alpha, alpha2, c, c2;
  std::optional<int> gamma, gamma2, rounds;
};
/// The formulas whose inputs are known: cascade_vertical (tau), cascade_vertical_ewif (speedup),
/// cascade_horizontal (tau), cascade_horizontal_ewif (speedup). Empty if alpha, alpha2 or gamma2
/// is absent, or both rounds and gamma.
std::vector<Prediction> cascade_predictions(const CascadeInputs& inputs);

}  // namespace speclab::theory
