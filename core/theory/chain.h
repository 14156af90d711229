#pragma once

#include <optional>
#include <vector>

/// Closed forms for a chain of gamma drafted tokens under the i.i.d. assumption: every tested token is
/// accepted with the same probability alpha, independently. Equation numbers are those of Leviathan, Kalman,
/// Matias, "Fast Inference from Transformers via Speculative Decoding" (ICML 2023).
///
/// All forms assume that gamma is fixed, that no step is cut by an end of text, and that the run is long. tau
/// counts the tokens emitted per target call *including* the correction or bonus, so 1 <= tau <= gamma + 1.
///
/// c = time of one draft forward / time of one target forward, one row each. c_hat = the same ratio in
/// arithmetic operations. t_verify = t(gamma + 1) = time of a target forward over gamma + 1 rows / time over
/// one row. Leviathan et al. assume t_verify = 1.
///
/// All functions throw Error for alpha outside [0, 1], gamma outside [0, kMaxGamma], a cost that is negative
/// or infinite, and a t_verify or speedup that is not finite and above 0. They are exact at the ends of the
/// domain (alpha = 0 and 1, c = 0, gamma = 0) and lose no digits near alpha = 1.
namespace speclab::theory {

/// Eq. 1: E[tau] = (1 - alpha^(gamma+1)) / (1 - alpha); gamma + 1 at alpha = 1.
double expected_tokens(double alpha, int gamma);

/// Limit of Eq. 1 for gamma -> infinity: 1 / (1 - alpha), or infinity at alpha = 1. It is also the limit of
/// Theorem 3.8 at c = 0.
double expected_tokens_limit(double alpha);

/// P(tau = i) for i = 1 .. gamma + 1, at index i - 1: a geometric law capped at gamma + 1.
std::vector<double> tokens_distribution(double alpha, int gamma);

/// Var(tau) = sum_{i=1}^{gamma+1} (2i - 1) alpha^(i-1) - E[tau]^2, computed in a form without cancellation.
double tokens_variance(double alpha, int gamma);

/// Theorem 3.8: expected improvement of walltime, E[tau] / (gamma c + t_verify). The paper has t_verify = 1.
double walltime_improvement(double alpha, int gamma, double c, double t_verify = 1);

/// Corollary 3.9: some gamma improves the walltime if and only if alpha > c (t(n) = 1).
bool some_gamma_helps(double alpha, double c);

/// Corollary 3.9: (1 + alpha) / (1 + c) is a lower bound of the best improvement. gamma = 1 reaches it.
double improvement_lower_bound(double alpha, double c);

/// Theorem 3.11: factor by which speculation multiplies the arithmetic operations per token,
/// (1 - alpha)(gamma c_hat + gamma + 1) / (1 - alpha^(gamma+1)). Ignores the growth of attention with
/// context.
double operations_factor(double alpha, int gamma, double c_hat);

/// Section 3.5: the integer gamma from 0 to max_gamma that maximises Theorem 3.8. The objective has a single
/// maximum. Ties go to the smaller gamma. If no gamma > 0 improves the walltime, the result is gamma = 0 with
/// speedup 1.
struct OptimalGamma {
  int gamma;
  double speedup;
  bool at_limit;  ///< optimal_gamma(): the objective still grew at max_gamma (always for c = 0 < alpha, and
                  ///< for alpha = 1 > c)
};
OptimalGamma optimal_gamma(double alpha, double c, int max_gamma = 1000);

/// Break-even: a step with gamma drafted tokens saves time if and only if tau > gamma c + t_verify. Returns
/// the right-hand side.
double break_even_tokens(int gamma, double c, double t_verify = 1);

/// The alpha for which Eq. 1 gives this tau. Absent when no alpha in [0, 1] does (tau < 1 or tau > gamma +
/// 1), and for gamma = 0, because every alpha gives tau = 1 there.
std::optional<double> alpha_from_tokens(double tau, int gamma);

/// The alpha for which Theorem 3.8 gives this speedup. Absent when no alpha in [0, 1] does, and for gamma =
/// 0.
std::optional<double> alpha_from_speedup(double speedup, int gamma, double c, double t_verify = 1);

/// The c for which Theorem 3.8 gives this speedup, (tau / speedup - t_verify) / gamma, for gamma >= 1. The
/// result is negative when the speedup exceeds the bound for a draft that costs nothing, as in 4 of the 12
/// lines of the paper's Table 2.
double c_from_speedup(double speedup, double alpha, int gamma, double t_verify = 1);

}  // namespace speclab::theory
