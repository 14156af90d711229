#include "core/theory/explain.h"

#include <fmt/format.h>

#include <cmath>

#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

void require_input(const ExplainInput& input) {
  require_range("tau", input.tau, 1, kMaxGamma + 1.0);
  require_positive("measured speedup", input.speedup);
  require_non_negative("assumed c", input.assumed_c);
}

double percent(double share) {
  return 100 * share;
}

}  // namespace

StepTimes calibrated_step(const Calibration& calibration, const DraftLengths& lengths, double tau) {
  require_positive("t_ar", calibration.t_ar);
  for (double time : {calibration.draft_token, calibration.draft_step, calibration.accept_step,
                      calibration.accept_row, calibration.other}) {
    require_non_negative("calibrated time", time);
  }
  StepTimes step;
  step.t_ar = calibration.t_ar;
  step.draft = calibration.draft_step + calibration.draft_token * mean_draft_length(lengths);
  step.accept = calibration.accept_step + calibration.accept_row * require_non_negative("tau", tau);
  step.other = calibration.other;
  double total = 0;
  for (std::size_t g = 0; g < lengths.size(); ++g) {
    if (lengths[g] == 0) continue;  // t(g + 1) may be an extrapolation that nothing needs
    step.target += lengths[g] * calibration.target.at(static_cast<int>(g) + 1);
    total += lengths[g];
  }
  step.target /= total;
  return step;
}

Waterfall explain(const ExplainInput& input) {
  require_input(input);
  const Calibration& costs = input.calibration;
  const double tau = input.tau, ideal_tau = mixture_expected_tokens(input.alpha, input.lengths);
  const StepTimes step = calibrated_step(costs, input.lengths, tau);
  const double drafted = mean_draft_length(input.lengths), one_row = costs.target.at(1);
  // Step time after each idealisation is dropped.
  const double ideal = costs.t_ar * (1 + input.assumed_c * drafted);
  const double with_draft = costs.t_ar + step.draft;
  const double with_width =
      require_positive("t_ar - t(1) + t(g + 1)", costs.t_ar - one_row + step.target) + step.draft;
  const double modelled = step.total();

  Waterfall out;
  out.start = input.assumed_c == 0
                  ? "Eq. 1: tokens a step, a draft that costs nothing, t(n) = t(1)"
                  : fmt::format("Theorem 3.8 with c {:.3f}, forwards of the draft alone, and t(n) = t(1)",
                                input.assumed_c);
  out.predicted = ideal_tau * costs.t_ar / ideal;
  out.measured = input.speedup;
  out.modelled_step = modelled;
  double speedup = out.predicted, known = 0;
  auto add = [&](std::string name, double next, std::string explanation) {
    WaterfallTerm term{std::move(name), next / speedup, std::log(next / speedup), next,
                       std::move(explanation)};
    known += term.log_ratio;
    speedup = next;
    out.terms.push_back(std::move(term));
  };
  add("i.i.d. assumption", tau * costs.t_ar / ideal,
      fmt::format("alpha {:.3f} at every position gives {:.3f} tokens a step, measured {:.3f}", input.alpha,
                  ideal_tau, tau));
  add("draft cost", tau * costs.t_ar / with_draft,
      fmt::format("{:.2f} drafted tokens a step take {:.1f} % of an autoregressive step in the loop, "
                  "predicted {:.1f} %",
                  drafted, percent(step.draft / costs.t_ar), percent(input.assumed_c * drafted)));
  add("verification width", tau * costs.t_ar / with_width,
      fmt::format("a forward over {:.2f} rows costs {:.3f} times one row", drafted + 1,
                  step.target / one_row));
  add("sampling and bookkeeping", tau * costs.t_ar / modelled,
      fmt::format("accept {:.2f} % and other {:.2f} % of an autoregressive step, which spends {:.2f} % on "
                  "them itself",
                  percent(step.accept / costs.t_ar), percent(costs.other / costs.t_ar),
                  percent(1 - one_row / costs.t_ar)));
  // The step time that the measured speedup stands for is tau t_ar / speedup.
  out.residual_share = 1 - input.speedup / speedup;
  std::string unexplained = fmt::format("the calibration leaves {:.1f} % of the step time unexplained",
                                        percent(out.residual_share));
  if ((out.residual_ci95 = input.residual_ci95)) {
    const auto [lo, hi] = *out.residual_ci95;
    unexplained += fmt::format(", 95 % interval {:.1f} to {:.1f}{}", percent(lo), percent(hi),
                               lo <= 0 && hi >= 0 ? ": no more than noise" : "");
  }
  add("residual", input.speedup, std::move(unexplained));
  // The sum over the terms is the gap: what rounding has lost on the way belongs to the residual too.
  WaterfallTerm& residual = out.terms.back();
  residual.log_ratio += std::log(out.measured / out.predicted) - known;
  return out;
}

std::string to_text(const Waterfall& waterfall) {
  std::string text =
      fmt::format("{:<26} {:>8} {:>10} {:>9}\n{:<26} {:>8} {:>10} {:>9.3f}   {}", "term", "factor",
                  "log-ratio", "speedup", "predicted", "", "", waterfall.predicted, waterfall.start);
  for (const WaterfallTerm& term : waterfall.terms) {
    text += fmt::format("\n{:<26} {:>8.3f} {:>+10.4f} {:>9.3f}   {}", term.name, term.factor, term.log_ratio,
                        term.speedup, term.explanation);
  }
  text += fmt::format("\n{:<26} {:>8.3f} {:>+10.4f} {:>9.3f}", "measured",
                      waterfall.measured / waterfall.predicted,
                      std::log(waterfall.measured / waterfall.predicted), waterfall.measured);
  return text;
}

}  // namespace speclab::theory
