// Metrics of work: calls, rows, operations and bytes, calibrated times of forwards, and drafts made ahead.
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/theory/cost.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

MetricValue per_token(const CaseData& data, double amount) {
  const double tokens = total_tokens(data);
  if (tokens == 0) return {};
  return {amount / tokens, nullptr};
}

bool has_draft_model(const CaseData& data) { return !data.config["draft"].is_null(); }

MetricValue target_calls(const CaseData& data) {
  return per_token(data, static_cast<double>(target_work(data).calls));
}
MetricValue draft_calls(const CaseData& data) {
  const Work work = draft_work(data);
  return has_draft_model(data) || work.calls > 0 ? per_token(data, static_cast<double>(work.calls))
                                                 : MetricValue{};
}
MetricValue target_rows(const CaseData& data) {
  return per_token(data, static_cast<double>(target_work(data).rows));
}
MetricValue wasted_rows(const CaseData& data) {
  return per_token(data, static_cast<double>(target_work(data).rows) - total_tokens(data));
}
/// Calls `visit` for each step of repeat 0 in which something was drafted ahead.
template <class Visit>
void for_each_ahead(const CaseData& data, Visit visit) {
  for_each_line(data, 0, [&](std::size_t prompt, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) {
        if (step.ahead) visit(prompt, *step.ahead);
      }
    }
  });
}

MetricValue ahead_right(const CaseData& data) {
  std::vector<double> right(data.lines.size(), 0.0), all = right;
  for_each_ahead(data, [&](std::size_t prompt, const AheadWork& work) {
    right[prompt] += work.right ? 1 : 0;
    ++all[prompt];
  });
  return ratio_of_sums(data, right, all);
}

MetricValue ahead_dropped(const CaseData& data) {
  double dropped = 0, steps = 0;
  bool any = false;
  for_each_ahead(data, [&](std::size_t, const AheadWork& work) {
    any = true;
    if (!work.right) dropped += work.drafted;
  });
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) { steps += step_count(line); });
  if (!any) return {};
  return {dropped / steps, nullptr};
}

MetricValue rows_per_step(const CaseData& data) {
  const Work work = target_work(data);
  if (work.calls == 0) return {};
  return {static_cast<double>(work.rows) / static_cast<double>(work.calls), nullptr};
}
MetricValue flops(const CaseData& data) {
  return per_token(data, target_work(data).flops + draft_work(data).flops);
}
MetricValue weight_bytes(const CaseData& data) {
  return per_token(data, target_work(data).weight_bytes + draft_work(data).weight_bytes);
}
MetricValue kv_bytes(const CaseData& data) {
  return per_token(data, target_work(data).kv_bytes + draft_work(data).kv_bytes);
}

MetricValue ops_factor(const CaseData& data) {
  const double tokens = total_tokens(data);
  if (!data.reference || tokens == 0) return {};
  const MetricValue base = flops(*data.reference);
  if (base.value.is_null() || base.value == 0.0) return {};
  return {theory::measured_operations_factor(target_work(data).flops, draft_work(data).flops, tokens,
                                             base.value.get<double>()),
          nullptr};
}

/// The calibration of the case's draft model; null when there is none.
json draft_calibration(const CaseData& data) {
  if (!has_draft_model(data) || data.calibration.is_null()) return nullptr;
  return data.calibration.at("drafts").value(data.config["draft"].get<std::string>(), json());
}

MetricValue c(const CaseData& data) {
  if (drafts_on_target(data) || (!has_draft_model(data) && draft_work(data).calls > 0)) {
    const auto cost = cost_of_drafting(data.calibration, data.id());
    return {cost ? json(*cost) : json(nullptr), nullptr};
  }
  const json draft = draft_calibration(data);
  return {draft.is_null() ? json(nullptr) : draft.at("c"), nullptr};
}

/// Calibrated time of a target forward of one row, in ms.
MetricValue t_target(const CaseData& data) {
  if (data.calibration.is_null()) return {};
  return {data.calibration.at("t_n_ns").at("1").get<double>() * 1e-6, nullptr};
}

MetricValue t_draft(const CaseData& data) {
  const json draft = draft_calibration(data);
  if (draft.is_null()) return {};
  return {draft.at("n_ns").at("1").get<double>() * 1e-6, nullptr};
}

/// c of each draft model of a case with several.
MetricValue c_by_draft(const CaseData& data) {
  const std::vector<std::string> names = draft_names(data.config);
  if (names.size() < 2 || data.calibration.is_null()) return {};
  json out = json::object();
  for (const std::string& name : names) {
    const json draft = data.calibration.at("drafts").value(name, json());
    out[name] = draft.is_null() ? json(nullptr) : draft.at("c");
  }
  return {out, nullptr};
}

/// draft_calls of each draft model of a case with several. The calls of equal names are added up.
MetricValue draft_calls_by_draft(const CaseData& data) {
  const std::vector<std::string> names = draft_names(data.config);
  const std::vector<Work> works = work_by_draft(data);
  const double tokens = total_tokens(data);
  if (names.size() < 2 || works.size() != names.size() || tokens == 0) return {};
  std::map<std::string, double> calls;
  for (std::size_t i = 0; i < names.size(); ++i)
    calls[names[i]] += static_cast<double>(works[i].calls) / tokens;
  return {json(calls), nullptr};
}

MetricValue c_hat(const CaseData& data) {
  const Work draft = draft_work(data);
  if (!data.reference || draft.rows == 0) return {};
  const Work target = target_work(*data.reference);
  if (target.rows == 0) return {};
  return {draft.flops / static_cast<double>(draft.rows) / (target.flops / static_cast<double>(target.rows)),
          nullptr};
}

MetricValue t_n(const CaseData& data) {
  return {data.calibration.is_null() ? json(nullptr) : data.calibration.at("t_n"), nullptr};
}

const std::array kWorkMetrics = {
    Metric{"c", "ratio", "time of a draft forward / of a target forward, one row each, from calibration",
           estimator::kTrimmedRatio, kLow, false, c},
    Metric{"c_hat", "ratio", "floating-point operations per fed token, draft / target",
           estimator::kRatioOfCounts, kLow, false, c_hat},
    Metric{"t_target", "ms", "time of a target forward of one row, from calibration", estimator::kTrimmedMean,
           kLow, false, t_target},
    Metric{"t_draft", "ms", "time of a draft forward of one row, from calibration", estimator::kTrimmedMean,
           kLow, false, t_draft},
    Metric{"t_n", "ratio", "n -> time of a target forward of n rows / of one row, from calibration",
           estimator::kTrimmedRatio, kLow, false, t_n},
    Metric{"target_calls", "1/token", "target forwards per emitted token", estimator::kRatioOfCounts, kLow,
           false, target_calls},
    Metric{"draft_calls", "1/token", "draft forwards per emitted token", estimator::kRatioOfCounts, kLow,
           false, draft_calls},
    Metric{"c_by_draft", "ratio", "c of each draft model of a case with several", estimator::kTrimmedRatio,
           kLow, false, c_by_draft},
    Metric{"draft_calls_by_draft", "1/token",
           "forwards of each draft model per emitted token, for a case with several",
           estimator::kRatioOfCounts, kLow, false, draft_calls_by_draft},
    Metric{"target_rows", "1/token", "tokens fed to the target per emitted token", estimator::kRatioOfCounts,
           kLow, false, target_rows},
    Metric{"wasted_rows", "1/token", "tokens fed to the target beyond those emitted, per emitted token",
           estimator::kRatioOfCounts, kLow, false, wasted_rows},
    Metric{"ahead_right", "", "share of the drafts made during a verification that the next step could use",
           estimator::kRatioOfSums, kHigh, false, ahead_right},
    Metric{"ahead_dropped", "tokens/step", "dropped tokens of drafts made during a verification, per step",
           estimator::kRatioOfCounts, kLow, false, ahead_dropped},
    Metric{"rows_per_step", "rows", "tokens fed to the target in a forward", estimator::kRatioOfCounts, kNone,
           false, rows_per_step},
    Metric{"flops", "1/token", "operations of target and draft per emitted token", estimator::kRatioOfCounts,
           kLow, false, flops},
    Metric{"weight_bytes", "B/token", "weights read by target and draft per emitted token",
           estimator::kRatioOfCounts, kLow, false, weight_bytes},
    Metric{"kv_bytes", "B/token", "KV cache read and written per emitted token", estimator::kRatioOfCounts,
           kNone, false, kv_bytes},
    Metric{"ops_factor", "ratio", "operations per token / operations per token of the reference",
           estimator::kRatioOfCounts, kLow, false, ops_factor},
};

}  // namespace

double rows_fed_per_step(const CaseData& data) {
  double rows = 0, steps = 0;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) rows += step.rows;
    }
    steps += step_count(line);
  });
  return steps > 0 ? rows / steps : 0;
}

double row_equivalents(const CaseData& data) {
  const Work own = target_work(data);
  if (data.reference && own.calls > 0) {
    const Work base = target_work(*data.reference);
    if (base.rows > 0 && base.flops > 0)
      return own.flops / static_cast<double>(own.calls) / (base.flops / static_cast<double>(base.rows));
  }
  return rows_fed_per_step(data);
}

std::span<const Metric> work_metrics() { return kWorkMetrics; }

}  // namespace speclab
