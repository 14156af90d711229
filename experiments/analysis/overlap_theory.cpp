#include "experiments/analysis/overlap_theory.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/simulate/timelines/overlap.h"
#include "core/theory/alpha_estimators.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Calibrated times in ns. `step` has the times of the target's forwards while the draft model works, of the
/// rule, and of the bookkeeping.
struct OverlapCosts {
  double draft = 0, draft_alone = 0;  ///< one drafted token: while the target works; while it waits
  theory::Calibration step;
};

std::optional<OverlapCosts> overlap_costs_of(const CaseData& data) {
  if (!drafts_ahead(data) || data.calibration.is_null() || !data.calibration.contains("ahead") ||
      !data.calibration.at("ahead").contains(data.id()))
    return std::nullopt;
  const auto step = calibration_of(data, data.calibration);
  if (!step) return std::nullopt;
  const json& ahead = data.calibration.at("ahead").at(data.id());
  return OverlapCosts{ahead.at("draft_ns").get<double>(), ahead.at("draft_alone_ns").get<double>(), *step};
}

/// The time of a step. `ready`: the step before has already drafted for it.
double overlap_step_ns(const OverlapCosts& costs, const StepRecord& step, bool ready) {
  const double fresh = ready ? 0 : costs.draft_alone * static_cast<double>(step.drafted.size());
  const double verification = costs.step.target.at(std::max(1, step.rows)) + costs.step.accept_step +
                              costs.step.accept_row * (step.accepted + 1);
  const double beside = step.ahead ? costs.draft * step.ahead->forwards : 0;
  return fresh + std::max(verification, beside) + costs.step.other;
}

/// The predicted time of a token, over the steps of repeat 0; nothing without tokens.
std::optional<double> overlap_token_ns(const CaseData& data, const OverlapCosts& costs) {
  double ns = 0, tokens = 0;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      bool ready = false;
      for (const StepRecord& step : turn.steps) {
        ns += overlap_step_ns(costs, step, ready);
        ready = step.ahead && step.ahead->right;
        tokens += step.emitted;
      }
    }
  });
  if (tokens == 0) return std::nullopt;
  return ns / tokens;
}

}  // namespace

std::vector<theory::Prediction> overlap_predictions(const CaseData& data, const json& metrics) {
  std::vector<theory::Prediction> out;
  const auto costs = overlap_costs_of(data);
  if (!costs) return out;
  const std::vector<PromptRounds> rounds = data.rounds();
  const auto alpha = metric_number(metrics, "alpha");
  const auto gamma =
      rounds.empty() ? std::nullopt : constant_gamma(data, theory::draft_length_counts(rounds));
  if (alpha && gamma) {
    out.push_back(
        {.name = "post_verify_iid",
         .value = simulate::post_verify_token_time(*alpha, *gamma, costs->draft, costs->step.target) * 1e-6,
         .quantity = "ms_per_token",
         .equation = "((1 - alpha^(gamma+1)) gamma d + max((gamma+1) d, t(gamma+1))) (1 - alpha) / (1 - "
                     "alpha^(gamma+1))",
         .assumptions = "every judged token is accepted with the same alpha, independently, the guessed one "
                        "too; d and t(n) are times of the two models while both work; nothing else takes "
                        "time; gamma fixed",
         .ci = {}});
  }
  if (const auto token = overlap_token_ns(data, *costs)) {
    const char* assumptions =
        "drafts and verdicts of each step as measured; calibrated times of the two models while both work, "
        "and of the rule and the bookkeeping";
    out.push_back({.name = "post_verify",
                   .value = *token * 1e-6,
                   .quantity = "ms_per_token",
                   .equation =
                       "mean time of a step / tau; a step takes g d if its g tokens are drafted anew, "
                       "and then the longer of verification and drafting ahead",
                   .assumptions = assumptions,
                   .ci = {}});
    out.push_back({.name = "post_verify_speedup",
                   .value = costs->step.t_ar / *token,
                   .quantity = "speedup",
                   .equation = "t_ar / time of a token by post_verify",
                   .assumptions = assumptions,
                   .ci = {}});
  }
  return out;
}

json overlap_summary(const CaseData& data, const json& metrics) {
  if (!drafts_ahead(data)) return nullptr;
  const auto metric = [&](const char* name) {
    const auto value = metric_number(metrics, name);
    return value ? json(*value) : json();
  };
  json out = {{"right", metric("ahead_right")},
              {"dropped_per_step", metric("ahead_dropped")},
              {"overlapped", metric("ahead_overlapped")},
              {"waited_ms_per_step", metric("time_waited")},
              {"ms_per_token", metric("ms_per_token")},
              {"predicted_ms_per_token", nullptr},
              {"error", nullptr}};
  const auto costs = overlap_costs_of(data);
  const auto token = costs ? overlap_token_ns(data, *costs) : std::nullopt;
  if (!token) return out;
  out["predicted_ms_per_token"] = *token * 1e-6;
  if (const auto measured = metric_number(metrics, "ms_per_token"); measured && *measured > 0)
    out["error"] = *token * 1e-6 / *measured - 1;
  return out;
}

std::string overlap_text(const json& summary) {
  const auto number = [&](const char* name, double factor, int digits) {
    return summary[name].is_number() ? fmt::format("{:.{}f}", factor * summary[name].get<double>(), digits)
                                     : std::string("an unknown number of");
  };
  if (!summary["right"].is_number()) return "drafting ahead: no step drafted ahead";
  std::string text = fmt::format(
      "drafting ahead: {} % of the drafts made during a verification were used, {} tokens a step were "
      "dropped; {} % of their time passed during the verification, and a step waited {} ms for them",
      number("right", 100, 0), number("dropped_per_step", 1, 2), number("overlapped", 100, 0),
      number("waited_ms_per_step", 1, 3));
  if (summary["error"].is_number()) {
    text += fmt::format("\nlaw of the timeline: {} ms a token, measured {} ({:+.1f} %)",
                        number("predicted_ms_per_token", 1, 3), number("ms_per_token", 1, 3),
                        100 * summary["error"].get<double>());
  }
  return text;
}

}  // namespace speclab
