#include "core/theory/chain.h"

#include <boost/math/tools/toms748_solve.hpp>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

/// alpha^n. For alpha >= 1/2 the difference 1 - alpha is exact, so log1p keeps all digits also when alpha is
/// close to 1.
double power(double alpha, double n) {
  if (n == 0) return 1;
  return alpha < 0.5 ? std::pow(alpha, n) : std::exp(n * std::log1p(-(1 - alpha)));
}

}  // namespace

double expected_tokens(double alpha, int gamma) {
  require_probability("alpha", alpha);
  require_gamma("gamma", gamma);
  if (alpha == 1) return gamma + 1.0;
  if (alpha == 0 || gamma == 0) return 1;
  // expm1 computes 1 - alpha^(gamma+1) without cancellation. For alpha -> 1 this numerator becomes as small
  // as the denominator.
  const double log_alpha = alpha < 0.5 ? std::log(alpha) : std::log1p(-(1 - alpha));
  return -std::expm1((gamma + 1.0) * log_alpha) / (1 - alpha);
}

double expected_tokens_limit(double alpha) {
  require_probability("alpha", alpha);
  return alpha == 1 ? std::numeric_limits<double>::infinity() : 1 / (1 - alpha);
}

std::vector<double> tokens_distribution(double alpha, int gamma) {
  require_probability("alpha", alpha);
  require_gamma("gamma", gamma);
  std::vector<double> probability(gamma + 1);  // [gamma + 1]
  double reached = 1;
  for (int i = 0; i < gamma; ++i) {
    probability[i] = reached * (1 - alpha);
    reached *= alpha;
  }
  probability[gamma] = reached;
  return probability;
}

double tokens_variance(double alpha, int gamma) {
  const double mean = expected_tokens(alpha, gamma);
  const std::vector<double> probability = tokens_distribution(alpha, gamma);
  double variance = 0;
  for (int i = 0; i <= gamma; ++i) variance += probability[i] * (i + 1 - mean) * (i + 1 - mean);
  return variance;
}

double walltime_improvement(double alpha, int gamma, double c, double t_verify) {
  return expected_tokens(alpha, gamma) / break_even_tokens(gamma, c, t_verify);
}

bool some_gamma_helps(double alpha, double c) {
  return require_probability("alpha", alpha) > require_non_negative("c", c);
}

double improvement_lower_bound(double alpha, double c) { return walltime_improvement(alpha, 1, c); }

double operations_factor(double alpha, int gamma, double c_hat) {
  require_non_negative("c_hat", c_hat);
  return (gamma * c_hat + gamma + 1) / expected_tokens(alpha, gamma);
}

OptimalGamma optimal_gamma(double alpha, double c, int max_gamma) {
  require_probability("alpha", alpha);
  require_non_negative("c", c);
  require_gamma("max_gamma", max_gamma);
  if (c == 0 && alpha > 0)  // every further token helps, also where alpha^(g+1) is too small for a double
    return {max_gamma, walltime_improvement(alpha, max_gamma, c), true};
  // Let S(g) be Theorem 3.8 and E(g) Eq. 1 at gamma = g. S(g+1) > S(g) iff gain(g) = alpha^(g+1) (g c + 1) -
  // c E(g) > 0, and gain(g) - gain(g-1) = -alpha^g (1 - alpha)(g c + 1) <= 0: once the gain is zero or less,
  // it stays so.
  auto gains = [&](int g) { return power(alpha, g + 1.0) * (g * c + 1) > c * expected_tokens(alpha, g); };
  int gamma = 0;
  while (gamma < max_gamma && gains(gamma)) ++gamma;
  return {gamma, walltime_improvement(alpha, gamma, c), gamma == max_gamma && gains(gamma)};
}

double break_even_tokens(int gamma, double c, double t_verify) {
  require_gamma("gamma", gamma);
  require_non_negative("c", c);
  require_positive("t_verify", t_verify);
  return gamma * c + t_verify;
}

std::optional<double> alpha_from_tokens(double tau, int gamma) {
  require_non_negative("tau", tau);
  require_gamma("gamma", gamma);
  // tau may be a speedup times a cost, and rounding may move this product a few bits past an end of the
  // range.
  constexpr double kRounding = 1e-14;
  if (gamma == 0 || tau < 1 - kRounding || tau > (gamma + 1.0) * (1 + kRounding)) return std::nullopt;
  if (tau <= 1) return 0.0;
  if (tau >= gamma + 1.0) return 1.0;
  std::uintmax_t iterations = 200;
  const auto bracket = boost::math::tools::toms748_solve(
      [&](double alpha) { return expected_tokens(alpha, gamma) - tau; }, 0.0, 1.0, 1 - tau, gamma + 1 - tau,
      boost::math::tools::eps_tolerance<double>(50), iterations);
  return 0.5 * (bracket.first + bracket.second);
}

std::optional<double> alpha_from_speedup(double speedup, int gamma, double c, double t_verify) {
  require_positive("speedup", speedup);
  return alpha_from_tokens(speedup * break_even_tokens(gamma, c, t_verify), gamma);
}

double c_from_speedup(double speedup, double alpha, int gamma, double t_verify) {
  require_positive("speedup", speedup);
  require_positive("t_verify", t_verify);
  if (require_gamma("gamma", gamma) == 0)
    throw Error({"gamma", "0", "an integer >= 1", "Without drafts there is no draft cost."});
  return (expected_tokens(alpha, gamma) / speedup - t_verify) / gamma;
}

}  // namespace speclab::theory
