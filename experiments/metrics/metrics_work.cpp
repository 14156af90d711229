// Metrics of work: calls, rows, operations and bytes, calibrated times of forwards, and drafts made ahead.
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/theory/cost.h"
#include "core/theory/explained/resampled_values.h"
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

/// Bytes that the forwards move: weights, and the KV cache read and written.
double bytes_of(const Work& work) { return work.weight_bytes + work.kv_bytes; }

MetricValue arithmetic_intensity(const CaseData& data) {
  const Work target = target_work(data), draft = draft_work(data);
  const double bytes = bytes_of(target) + bytes_of(draft);
  if (bytes <= 0) return {};
  return {(target.flops + draft.flops) / bytes, nullptr};
}

MetricValue ridge_point(const CaseData& data) {
  const double bandwidth = data.environment.value("read_bandwidth_bytes_per_second", 0.0);
  const double peak = data.environment.value("peak_flops", 0.0);
  if (bandwidth <= 0 || peak <= 0) return {};
  return {peak / bandwidth, nullptr};
}

/// Numbers that a calibration table gives, by name.
using Numbers = std::map<std::string, double>;

/// A metric that is a map of numbers from the calibration. Each number has an interval over the resampled
/// calibrations (bootstrap over rounds). The metric is null without a calibration or without numbers. An
/// interval is null if more than half of the resamples lack the number. With fewer than two rounds there are
/// no intervals.
MetricValue from_calibration(const CaseData& data,
                             const std::function<Numbers(const json& table)>& numbers_of) {
  if (data.calibration.is_null()) return {};
  const Numbers numbers = numbers_of(data.calibration);
  if (numbers.empty()) return {};
  MetricValue result{json(numbers), nullptr};
  if (!data.intervals || !data.resampled_calibrations || data.resampled_calibrations->empty()) return result;
  theory::ResampledValues resampled;
  for (const json& table : *data.resampled_calibrations) resampled.add(numbers_of(table));
  result.ci95 = json::object();
  for (const auto& [name, number] : numbers)
    result.ci95[name] = interval_json(resampled.interval(name, std::nan("")));
  return result;
}

/// Like from_calibration(), for a metric that is one number.
MetricValue number_from_calibration(
    const CaseData& data, const std::function<std::optional<double>(const json& table)>& number_of) {
  const std::string name = "number";
  MetricValue result = from_calibration(data, [&](const json& table) {
    const std::optional<double> number = number_of(table);
    return number ? Numbers{{name, *number}} : Numbers();
  });
  if (!result.value.is_null()) result.value = json(result.value.at(name));
  if (!result.ci95.is_null()) result.ci95 = json(result.ci95.at(name));
  return result;
}

/// The entry of a draft model in a calibration table; null if the table does not have it.
json draft_entry(const json& table, const std::string& draft) {
  return table.at("drafts").value(draft, json());
}

/// c of a draft model; absent if the table does not have the model.
std::optional<double> c_of_draft(const json& table, const std::string& draft) {
  const json entry = draft_entry(table, draft);
  if (entry.is_null()) return std::nullopt;
  return entry.at("c").get<double>();
}

MetricValue c(const CaseData& data) {
  if (drafts_on_target(data) || (!has_draft_model(data) && draft_work(data).calls > 0)) {
    return number_from_calibration(data,
                                   [&](const json& table) { return cost_of_drafting(table, data.id()); });
  }
  if (!has_draft_model(data)) return {};
  const auto draft = data.config["draft"].get<std::string>();
  return number_from_calibration(data, [&](const json& table) { return c_of_draft(table, draft); });
}

/// Calibrated time of a target forward of one row, in ms.
MetricValue t_target(const CaseData& data) {
  return number_from_calibration(data, [](const json& table) -> std::optional<double> {
    return table.at("t_n_ns").at("1").get<double>() * 1e-6;
  });
}

MetricValue t_draft(const CaseData& data) {
  if (!has_draft_model(data)) return {};
  const auto draft = data.config["draft"].get<std::string>();
  return number_from_calibration(data, [&](const json& table) -> std::optional<double> {
    const json entry = draft_entry(table, draft);
    if (entry.is_null()) return std::nullopt;
    return entry.at("n_ns").at("1").get<double>() * 1e-6;
  });
}

/// c of each draft model of a case with several; null for a model that was not calibrated.
MetricValue c_by_draft(const CaseData& data) {
  const std::vector<std::string> names = draft_names(data.config);
  if (names.size() < 2 || data.calibration.is_null()) return {};
  MetricValue result = from_calibration(data, [&](const json& table) {
    Numbers numbers;
    for (const std::string& name : names) {
      if (const auto number = c_of_draft(table, name)) numbers[name] = *number;
    }
    return numbers;
  });
  for (const std::string& name : names) result.value.emplace(name, nullptr);
  return result;
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
  return from_calibration(data, [](const json& table) { return table.at("t_n").get<Numbers>(); });
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
    Metric{"arithmetic_intensity", "flop/B",
           "operations of target and draft / bytes of weights and KV cache that their forwards move; below "
           "ridge_point the machine's bandwidth limits the forwards, above it the machine's peak does",
           estimator::kRatioOfCounts, kNone, false, arithmetic_intensity},
    Metric{"ridge_point", "flop/B", "measured peak / measured read bandwidth of the machine",
           estimator::kRatioOfLimits, kNone, false, ridge_point},
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
