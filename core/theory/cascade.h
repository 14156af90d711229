#pragma once

#include <optional>
#include <vector>

#include "core/theory/predictions.h"

/// Closed forms for a cascade of two drafts (Chen et al. 2023, "Cascade Speculative Drafting", arXiv
/// 2312.11462, Section 4 and Appendix). Like those of core/theory/chain.h they assume that every tested token
/// is accepted with a fixed probability, independently, and that rows are free (t(n) = 1). c1 is the time of
/// a forward of draft 1 / the time of a target forward, one row each; c2 is the same ratio for draft 2.
///
/// EWIF (expected walltime improvement factor) = expected tokens per step / time of a step in target
/// forwards. All functions throw Error for probabilities outside [0, 1], numbers of tokens outside [0,
/// kMaxGamma] and negative costs.
namespace speclab::theory {

/// Vertical cascade: draft 1 makes the chain for the target in `rounds` rounds. In each round it reviews k
/// tokens of draft 2 and adds one token. The target accepts a token with probability alpha1, draft 1 with
/// alpha2.
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

/// The inputs of `speclab theory`. With `rounds` the cascade is vertical: draft 1 makes `rounds` reviews of
/// `gamma2` tokens. Otherwise it is horizontal: `gamma` is k1, and `gamma2` is k2.
struct CascadeInputs {
  std::optional<double> alpha, alpha2, c, c2;
  std::optional<int> gamma, gamma2, rounds;
};
/// The formulas whose inputs are known: cascade_vertical (tau), cascade_vertical_ewif (speedup),
/// cascade_horizontal (tau), cascade_horizontal_ewif (speedup). Empty if alpha, alpha2 or gamma2
/// is absent.
std::vector<Prediction> cascade_predictions(const CascadeInputs& inputs);

}  // namespace speclab::theory
