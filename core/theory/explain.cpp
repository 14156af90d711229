#include "core/theory/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

void require_input(const ExplainInput& input) {
  require_range("tau", input.tau, 1, kMaxGamma + 1.0);
  require_positive("measured speedup", input.speedup);
  require_non_negative("assumed c", input.assumed_c);
}

double percent(double share) { return 100 * share; }

std::string drift_name(DriftSource source) {
  switch (source) {
    case DriftSource::probes: return "machine drift by probes";
    case DriftSource::lines: return "forwards timed again in the line";
    case DriftSource::rounds: return "calibration rounds next to the line";
    case DriftSource::both: break;
  }
  return "machine drift, measured in several ways";
}

std::string drift_text(const Drift& drift) {
  const std::string slower =
      fmt::format("the machine was {:.1f} % {} for this case than for the reference",
                  percent(std::abs(1 / drift.factor - 1)), drift.factor < 1 ? "slower" : "faster");
  const std::string with_t =
      "; these forwards have the case's own row counts, so an error of t(n) is in this term too";
  switch (drift.source) {
    case DriftSource::probes: return fmt::format("by probes in the lines (probe_every), {}", slower);
    case DriftSource::lines: return fmt::format("by forwards timed inside the lines, {}{}", slower, with_t);
    case DriftSource::rounds: return fmt::format("by the calibration rounds next to the lines, {}", slower);
    case DriftSource::both: break;
  }
  return fmt::format("in different ways for different lines, {}", slower);
}

std::string unexplained_text(double share, const std::optional<stats::Interval>& interval,
                             std::size_t prompts) {
  std::string text =
      fmt::format("the calibration leaves {:.1f} % of the step time unexplained", percent(share));
  if (!interval) return text;
  text += fmt::format(", 95 % interval {:.1f} to {:.1f}", percent(interval->lo), percent(interval->hi));
  if (prompts < stats::kFewClusters) text += fmt::format(" (n = {})", prompts);
  return text + (interval->lo <= 0 && interval->hi >= 0 ? ": no more than noise" : "");
}

/// `before` and "95 % interval 1.400 to 1.520"; "" without an interval.
std::string speedup_text(const char* before, const std::optional<stats::Interval>& interval) {
  if (!interval) return "";
  return fmt::format("{}95 % interval {:.3f} to {:.3f}", before, interval->lo, interval->hi);
}

/// The interval of a factor, from the interval of its logarithm: "[0.980, 1.020]"; "" without an interval.
std::string factor_text(const std::optional<stats::Interval>& log_ratio) {
  if (!log_ratio) return "";
  return fmt::format("[{:.3f}, {:.3f}]", std::exp(log_ratio->lo), std::exp(log_ratio->hi));
}

/// The interval of log(measured / modelled speedup), from the interval of the unexplained share. This share
/// is 1 - measured / modelled speedup.
std::optional<stats::Interval> log_of_explained(const std::optional<stats::Interval>& unexplained) {
  if (!unexplained || unexplained->hi >= 1) return std::nullopt;
  return stats::Interval{std::log1p(-unexplained->hi), std::log1p(-unexplained->lo)};
}

// Names of values of a resample; the name of a term is kTerm + its key.
const std::string kPredicted = "predicted", kMeasured = "measured", kUnexplained = "unexplained",
                  kResidual = "residual", kTerm = "term ";

/// Collects the terms. Each term is added with the predicted speedup that includes it. The residual comes
/// last.
class Terms {
 public:
  Terms(Waterfall& out, const WaterfallIntervals& intervals) : out_(out), speedup_(out.predicted) {
    out_.intervals = intervals;
  }

  void add(const char* key, std::string name, double next, std::string explanation) {
    WaterfallTerm term{key,  std::move(name),       next / speedup_, std::log(next / speedup_),
                       next, std::move(explanation)};
    if (const auto ci = out_.intervals.log_ratios.find(term.key); ci != out_.intervals.log_ratios.end())
      term.ci = ci->second;
    known_ += term.log_ratio;
    speedup_ = next;
    out_.terms.push_back(std::move(term));
  }

  void add_drift(const std::optional<Drift>& drift) {
    out_.unexplained_share = unexplained();
    if (!drift) return;
    out_.drift = drift->source;
    add("machine_drift", drift_name(drift->source),
        speedup_ * require_positive("drift of the machine", drift->factor), drift_text(*drift));
  }

  void add_residual() {
    const WaterfallIntervals& intervals = out_.intervals;
    out_.residual_share = unexplained();
    const auto& interval = out_.drift ? intervals.residual : intervals.unexplained;
    add("residual", "residual", out_.measured,
        unexplained_text(out_.residual_share, interval, intervals.prompts));
    // The terms must add up to the gap, so rounding errors go into the residual too.
    out_.terms.back().log_ratio += std::log(out_.measured / out_.predicted) - known_;
  }

 private:
  /// Share of the measured step time that the terms so far do not explain. The measured step time is tau t_ar
  /// / speedup.
  double unexplained() const { return 1 - out_.measured / speedup_; }

  Waterfall& out_;
  double speedup_, known_ = 0;
};

std::string bookkeeping_text(const StepTimes& step, const Calibration& costs) {
  return fmt::format(
      "accept {:.2f} % and other {:.2f} % of an autoregressive step, which has {:.2f} % outside its forward",
      percent(step.accept / costs.t_ar), percent(costs.other / costs.t_ar),
      percent(1 - costs.target.at(1) / costs.t_ar));
}

/// Mean over steps of t(scale x rows), linear between whole rows.
double mean_time(const RowTimes& target, const DraftLengths& rows, double scale) {
  double sum = 0, steps = 0;
  for (std::size_t n = 1; n < rows.size(); ++n) {
    if (rows[n] == 0) continue;
    sum += rows[n] * target.at_mean(std::max(1.0, scale * static_cast<double>(n)));
    steps += rows[n];
  }
  return require_positive("time of the rows", steps > 0 ? sum / steps : 0);
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
  const RowTimes verification = calibration.target.after_drafting(calibration.done_share);
  double total = 0;
  for (std::size_t g = 0; g < lengths.size(); ++g) {
    if (lengths[g] == 0) continue;  // avoids extrapolating t(g + 1) when no step needs it
    step.target += lengths[g] * verification.at(static_cast<int>(g) + 1);
    total += lengths[g];
  }
  step.target /= total;
  return step;
}

Waterfall explain(const ExplainInput& input) {
  require_input(input);
  const Calibration& costs = input.calibration;
  const double tau = input.tau, ideal_tau = input.gamma ? expected_tokens(input.alpha, *input.gamma)
                                                        : mixture_expected_tokens(input.alpha, input.lengths);
  const StepTimes step = calibrated_step(costs, input.lengths, tau);
  const double drafted = mean_draft_length(input.lengths), one_row = costs.target.at(1);
  const double asked = input.gamma ? *input.gamma : drafted;
  // Step time after each idealisation is dropped.
  const double ideal = costs.t_ar * (1 + input.assumed_c * asked);
  const double with_draft = costs.t_ar + step.draft;
  const double with_width =
      require_positive("t_ar - t(1) + t(g + 1)", costs.t_ar - one_row + step.target) + step.draft;
  const double modelled = step.total();

  Waterfall out;
  out.start = input.assumed_c == 0
                  ? "Eq. 1: tokens a step, a draft that costs nothing, t(n) = t(1)"
                  : fmt::format("Theorem 3.8 with c {:.3f}, forwards of the draft alone, and t(n) = t(1)",
                                input.assumed_c);
  out.predicted = input.gamma ? walltime_improvement(input.alpha, *input.gamma, input.assumed_c)
                              : ideal_tau / (1 + input.assumed_c * asked);
  out.measured = input.speedup;
  out.modelled_step = modelled;
  Terms terms(out, input.intervals);
  terms.add("iid", "i.i.d. assumption", tau * costs.t_ar / ideal,
            fmt::format("alpha {:.3f} at every position gives {:.3f} tokens a step, measured {:.3f}",
                        input.alpha, ideal_tau, tau));
  terms.add("draft_cost", "draft cost", tau * costs.t_ar / with_draft,
            fmt::format("{:.2f} drafted tokens a step take {:.1f} % of an autoregressive step in the loop, "
                        "predicted {:.1f} %",
                        drafted, percent(step.draft / costs.t_ar), percent(input.assumed_c * asked)));
  terms.add("verification_width", "verification width", tau * costs.t_ar / with_width,
            fmt::format("a forward over {:.2f} rows costs {:.3f} times one row", drafted + 1,
                        step.target / one_row));
  terms.add("sampling_and_bookkeeping", "sampling and bookkeeping", tau * costs.t_ar / modelled,
            bookkeeping_text(step, costs));
  terms.add_drift(input.drift);
  terms.add_residual();
  return out;
}

StepTimes calibrated_rows_step(const RowsExplainInput& input) {
  StepTimes step = calibrated_step(input.calibration, constant_draft_length(0), input.tau);
  step.draft += input.calibration.draft_token * require_non_negative("drafted tokens", input.drafted);
  step.target = mean_time(input.calibration.target.after_drafting(input.calibration.done_share), input.rows,
                          require_positive("share of rows", input.equivalent_share));
  return step;
}

Waterfall explain_rows(const RowsExplainInput& input) {
  require_range("tau", input.tau, 1, kMaxGamma + 1.0);
  require_positive("measured speedup", input.speedup);
  const Calibration& costs = input.calibration;
  const double tau = input.tau, one_row = costs.target.at(1), rest = costs.t_ar - one_row;
  const StepTimes step = calibrated_rows_step(input);
  const double window = rest + mean_time(costs.target, input.window_rows, 1),
               rows = rest + mean_time(costs.target.after_drafting(costs.done_share), input.rows, 1),
               equivalent = rest + step.target;
  const bool has_law = input.predicted_tau > 0, has_window = mean_draft_length(input.window_rows) > 1;
  Waterfall out;
  out.start_name = "free_rows";
  out.start = has_law ? fmt::format("{}, and rows that cost nothing", input.law)
                      : "tokens per step as measured, and rows that cost nothing";
  out.predicted = has_law ? input.predicted_tau : tau;
  out.measured = input.speedup;
  out.modelled_step = step.total();
  Terms terms(out, input.intervals);
  if (has_law)
    terms.add("law", "law", tau,
              fmt::format("{:.3f} tokens a step predicted, {:.3f} measured", input.predicted_tau, tau));
  if (has_window) {
    terms.add(
        "window_rows", "window rows", tau * costs.t_ar / window,
        fmt::format("{:.1f} rows of the window, the pending token among them, cost {:.3f} times one row",
                    mean_draft_length(input.window_rows), (window - rest) / one_row));
  }
  terms.add("drafted_rows", "drafted rows", tau * costs.t_ar / rows,
            fmt::format("a forward over all {:.1f} rows costs {:.3f} times one row",
                        mean_draft_length(input.rows), (rows - rest) / one_row));
  if (input.equivalent_share < 1) {
    terms.add("rows_without_logits", "rows without logits", tau * costs.t_ar / equivalent,
              fmt::format("logits of some rows are not computed: as many operations as {:.1f} rows",
                          input.equivalent_share * mean_draft_length(input.rows)));
  }
  terms.add(
      "draft_cost", "draft cost", tau * costs.t_ar / (equivalent + step.draft),
      fmt::format("drafting takes {:.1f} % of an autoregressive step", percent(step.draft / costs.t_ar)));
  terms.add("sampling_and_bookkeeping", "sampling and bookkeeping", tau * costs.t_ar / step.total(),
            bookkeeping_text(step, costs));
  terms.add_drift(input.drift);
  terms.add_residual();
  return out;
}

std::string_view to_string(DriftSource source) {
  switch (source) {
    case DriftSource::probes: return "probes";
    case DriftSource::rounds: return "rounds";
    case DriftSource::lines: return "lines";
    case DriftSource::both: break;
  }
  return "both";
}

std::string to_text(const Waterfall& waterfall) {
  constexpr std::size_t kWidth = 26, kSpan = 17;
  std::size_t width = kWidth;
  for (const WaterfallTerm& term : waterfall.terms) width = std::max(width, term.name.size());
  const WaterfallIntervals& intervals = waterfall.intervals;
  const bool spans = !intervals.log_ratios.empty();
  const std::size_t gap = spans ? kSpan : 0;  // width of the column of intervals
  std::string text = fmt::format("{:<{}} {:>8}{:>{}} {:>10} {:>9}", "term", width, "factor",
                                 spans ? "95 % interval" : "", gap, "log-ratio", "speedup");
  text += fmt::format("\n{:<{}} {:>8}{:>{}} {:>10} {:>9.3f}   {}{}", "predicted", width, "", "", gap, "",
                      waterfall.predicted, waterfall.start, speedup_text(", ", intervals.predicted));
  const auto line = [&](const std::string& name, double factor, const std::optional<stats::Interval>& ci,
                        double log_ratio, double speedup, const std::string& explanation) {
    text += fmt::format("\n{:<{}} {:>8.3f}{:>{}} {:>+10.4f} {:>9.3f}", name, width, factor,
                        spans ? factor_text(ci) : "", gap, log_ratio, speedup);
    if (!explanation.empty()) text += "   " + explanation;
  };
  const auto line_of = [&](const WaterfallTerm& term) {
    line(term.name, term.factor, term.ci, term.log_ratio, term.speedup, term.explanation);
  };
  const std::size_t known = waterfall.terms.size() - (waterfall.drift ? 2 : 1);
  double speedup = waterfall.predicted, left = std::log(waterfall.measured / waterfall.predicted);
  for (std::size_t i = 0; i < known; ++i) {
    line_of(waterfall.terms[i]);
    speedup = waterfall.terms[i].speedup, left -= waterfall.terms[i].log_ratio;
  }
  line("residual", waterfall.measured / speedup, log_of_explained(intervals.unexplained), left,
       waterfall.measured,
       unexplained_text(waterfall.unexplained_share, intervals.unexplained, intervals.prompts));
  line("measured", waterfall.measured / waterfall.predicted, std::nullopt,
       std::log(waterfall.measured / waterfall.predicted), waterfall.measured,
       speedup_text("", intervals.measured));
  if (waterfall.drift) {
    text += "\nThe residual in two parts:";
    for (std::size_t i = known; i < waterfall.terms.size(); ++i) line_of(waterfall.terms[i]);
  }
  if (spans) {
    text += fmt::format("\nIntervals: 95 %, bootstrap over {} prompts and the calibration rounds.",
                        intervals.prompts);
  }
  return text;
}

void ResampledWaterfalls::add(const Waterfall& waterfall) {
  std::map<std::string, double> values = {{kPredicted, waterfall.predicted},
                                          {kMeasured, waterfall.measured},
                                          {kUnexplained, waterfall.unexplained_share},
                                          {kResidual, waterfall.residual_share}};
  for (const WaterfallTerm& term : waterfall.terms) {
    keys_.insert(term.key);
    values[kTerm + term.key] = term.log_ratio;
  }
  values_.add(values);
}

WaterfallIntervals ResampledWaterfalls::intervals(std::size_t prompts) const {
  WaterfallIntervals out;
  out.prompts = prompts;
  out.predicted = values_.interval(kPredicted);
  out.measured = values_.interval(kMeasured);
  out.unexplained = values_.interval(kUnexplained);
  out.residual = values_.interval(kResidual);
  for (const std::string& key : keys_) {
    if (const auto ci = values_.interval(kTerm + key)) out.log_ratios.emplace(key, *ci);
  }
  return out;
}

}  // namespace speclab::theory
