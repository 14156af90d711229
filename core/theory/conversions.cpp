#include "core/theory/conversions.h"

#include <cmath>
#include <string>

#include "core/base/error.h"
#include "core/theory/alpha_estimators.h"
#include "core/theory/chain.h"

namespace speclab::theory {
namespace {

using Kind = PredictionKind;

constexpr const char* kSameAlpha =
    "every tested token is accepted with the same alpha, independently; gamma fixed";

/// What a formula assumes about the times of a step.
std::string assumed_times(const PredictionInputs& in) {
  return in.target && !in.target->flat()
             ? "nothing but draft and target takes time"
             : "t(n) = t(1) for n <= gamma + 1, nothing but draft and target takes time";
}

void add_utilization(const PredictionInputs& in, std::optional<double> utilization,
                     std::vector<Prediction>& out) {
  if (in.alpha && in.gamma && *in.gamma > 0) {
    out.push_back({"draft_utilization",
                   expected_draft_utilization(*in.alpha, *in.gamma),
                   "draft_utilization",
                   "(E[tau] - 1) / gamma",
                   kSameAlpha,
                   Kind::prediction,
                   {}});
  }
  if (!utilization) return;
  if (!in.gamma) {
    throw Error({"utilization", "no gamma", "gamma, the tokens drafted per step",
                 "The same utilization means a different alpha at each gamma."});
  }
  out.push_back({"implied_alpha_utilization",
                 alpha_from_utilization(*utilization, *in.gamma),
                 "alpha",
                 "Eq. 1 solved for alpha at tau = 1 + gamma utilization",
                 kSameAlpha,
                 Kind::prediction,
                 {}});
}

void add_implied_c(const PredictionInputs& in, std::vector<Prediction>& out) {
  if (!in.speedup || !in.alpha || !in.gamma || *in.gamma == 0) return;
  const double t_verify = in.target ? in.target->ratio(*in.gamma + 1) : 1;
  const double c = c_from_speedup(*in.speedup, *in.alpha, *in.gamma, t_verify);
  const std::string above = c < 0 ? "negative: the speedup is above the bound for a free draft; " : "";
  out.push_back({"implied_c",
                 c,
                 "c",
                 "(E[tau] / speedup - t(gamma+1)) / gamma",
                 above + kSameAlpha + "; " + assumed_times(in),
                 Kind::prediction,
                 {}});
}

void add_best_length(const PredictionInputs& in, std::vector<Prediction>& out) {
  if (in.acceptance.empty() || !in.c) return;
  const OptimalGamma best =
      optimal_gamma_positional(in.acceptance, *in.c, in.target ? *in.target : RowTimes());
  const std::string assumed =
      std::string(best.at_limit ? "the speedup still grows at the last known position"
                                : "acceptance at a position does not depend on gamma") +
      "; " + assumed_times(in);
  out.push_back({"optimal_gamma_positional",
                 double(best.gamma),
                 "gamma",
                 "argmax over gamma of (1 + sum_i prod_{j<=i} a_j) / (gamma c + t(gamma+1))",
                 assumed,
                 Kind::optimum,
                 {}});
  out.push_back({"optimal_speedup_positional",
                 best.speedup,
                 "speedup",
                 "max over gamma of (1 + sum_i prod_{j<=i} a_j) / (gamma c + t(gamma+1))",
                 assumed,
                 Kind::optimum,
                 {}});
}

}  // namespace

std::vector<Prediction> conversions(const PredictionInputs& inputs, std::optional<double> utilization) {
  std::vector<Prediction> out;
  if (inputs.alpha && inputs.gamma) {
    out.push_back({"tau_deviation",
                   std::sqrt(tokens_variance(*inputs.alpha, *inputs.gamma)),
                   "tau_sd",
                   "sqrt(sum_i (2i - 1) alpha^(i-1) - E[tau]^2)",
                   kSameAlpha,
                   Kind::prediction,
                   {}});
  }
  add_utilization(inputs, utilization, out);
  add_implied_c(inputs, out);
  add_best_length(inputs, out);
  return out;
}

}  // namespace speclab::theory
