#include "core/theory/cascade.h"

#include <cmath>
#include <string>
#include <utility>

#include "core/theory/chain.h"
#include "core/theory/domain.h"

namespace speclab::theory {

// The fraction is Eq. 1 of Leviathan et al. 2023 at alpha2 x.
double round_generating_function(double alpha2, int k, double x) {
  require_probability("alpha2", alpha2);
  require_probability("x", x);
  require_gamma("gamma2", k);
  return 1 + (x - 1) * expected_tokens(alpha2 * x, k);
}

// The form 1 + alpha1 (1 - phi^n) / (1 - alpha1) with 1 - phi = (1 - alpha1) S loses no digits near alpha1
// = 1.
double vertical_tokens(const VerticalCascade& cascade) {
  const double a = require_probability("alpha", cascade.alpha1);
  require_probability("alpha2", cascade.alpha2);
  require_gamma("gamma2", cascade.k);
  const double n = require_gamma("rounds", cascade.rounds);
  const double tokens = expected_tokens(cascade.alpha2 * a, cascade.k);  // S
  if (a == 1) return 1 + n * tokens;
  if (n == 0) return 1;
  return 1 - a * std::expm1(n * std::log1p(-(1 - a) * tokens)) / (1 - a);
}

double vertical_improvement(const VerticalCascade& cascade) {
  const double c1 = require_non_negative("c", cascade.c1), c2 = require_non_negative("c2", cascade.c2);
  return vertical_tokens(cascade) / (1 + cascade.rounds * (c1 + cascade.k * c2));
}

double horizontal_tokens(const HorizontalCascade& cascade) {
  require_probability("alpha2", cascade.alpha2);
  require_gamma("gamma2", cascade.k2);
  const double first = expected_tokens(cascade.alpha1, cascade.k1);
  return first + std::pow(cascade.alpha1, cascade.k1) * (expected_tokens(cascade.alpha2, cascade.k2) - 1);
}

double horizontal_improvement(const HorizontalCascade& cascade) {
  const double c1 = require_non_negative("c", cascade.c1), c2 = require_non_negative("c2", cascade.c2);
  return horizontal_tokens(cascade) / (1 + cascade.k1 * c1 + cascade.k2 * c2);
}

std::vector<Prediction> cascade_predictions(const CascadeInputs& in) {
  std::vector<Prediction> out;
  if (!in.alpha || !in.alpha2 || !in.gamma2) return out;
  const bool costs = in.c && in.c2;
  const double c1 = in.c.value_or(0), c2 = in.c2.value_or(0);
  const auto add = [&](const char* name, double value, const char* quantity, const char* equation,
                       std::string assumptions) {
    out.push_back({name, value, quantity, equation, std::move(assumptions), PredictionKind::prediction, {}});
  };
  const std::string same = "acceptances independent and equal in all positions";
  if (in.rounds) {
    const VerticalCascade cascade{*in.alpha, *in.alpha2, *in.rounds, *in.gamma2, c1, c2};
    add("cascade_vertical", vertical_tokens(cascade), "tau",
        "(1 - alpha phi(alpha)^n) / (1 - alpha), phi of alpha2 and gamma2 (Chen et al. 2023)",
        same + "; draft 1 reviews gamma2 tokens of draft 2 in each of n rounds");
    if (costs)
      add("cascade_vertical_ewif", vertical_improvement(cascade), "speedup",
          "E[tau] / (1 + n c + n gamma2 c2) (Chen et al. 2023)", same + "; t(n) = 1; no overhead");
  } else if (in.gamma) {
    const HorizontalCascade cascade{*in.alpha, *in.alpha2, *in.gamma, *in.gamma2, c1, c2};
    add("cascade_horizontal", horizontal_tokens(cascade), "tau",
        "(1 - alpha^(gamma+1)) / (1 - alpha) + alpha^gamma alpha2 (1 - alpha2^gamma2) / (1 - alpha2) "
        "(Chen et al. 2023)",
        same + "; gamma tokens of draft 1, then gamma2 of draft 2");
    if (costs)
      add("cascade_horizontal_ewif", horizontal_improvement(cascade), "speedup",
          "E[tau] / (1 + gamma c + gamma2 c2) (Chen et al. 2023)", same + "; t(n) = 1; no overhead");
  }
  return out;
}

}  // namespace speclab::theory
