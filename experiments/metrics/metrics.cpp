#include "experiments/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/decoding/registry.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {

using nlohmann::json;

std::string_view to_string(Better better) {
  return better == Better::higher ? "higher" : better == Better::lower ? "lower" : "neither";
}

std::span<const Metric> metrics() {
  static const std::vector<Metric> all = [] {
    std::vector<Metric> list;
    for (const auto part :
         {text_metrics(), time_metrics(), acceptance_metrics(), bound_metrics(), work_metrics()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}

json compute_metrics(const CaseData& data, std::initializer_list<std::string_view> names) {
  json out = json::object();
  const bool wrong = data.unequal() || (data.reference && data.reference->unequal());
  const bool timeless = wrong || data.devices() > 1;  // devices of a divided step ran one by one
  for (const Metric& metric : metrics()) {
    if (names.size() > 0 && std::find(names.begin(), names.end(), metric.name) == names.end()) continue;
    MetricValue result;
    if (!data.lines.empty() && !(metric.timed && timeless)) result = metric.compute(data);
    out[std::string(metric.name)] = std::move(result.value);
    if (!result.ci95.is_null() && data.intervals)
      out[std::string(metric.name) + "_ci95"] = std::move(result.ci95);
  }
  return out;
}

void for_each_line(const CaseData& data, std::size_t repeat,
                   const std::function<void(std::size_t, const LineRecord&)>& visit) {
  for (std::size_t i = 0; i < data.lines.size(); ++i) {
    for (const auto& seed : *data.lines[i]) {
      if (repeat < seed.size()) visit(i, seed[repeat]);
    }
  }
}

bool any_step(const CaseData& data, const std::function<bool(const StepRecord&)>& predicate) {
  bool any = false;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) any = any || std::ranges::any_of(turn.steps, predicate);
  });
  return any;
}

bool drafts_ahead(const CaseData& data) {
  const StrategyInfo* strategy = recorded_strategy(data.config.value("strategy", ""));
  return strategy != nullptr && strategy->drafts_ahead;
}

bool drafts_on_target(const CaseData& data) {
  const StrategyInfo* strategy = recorded_strategy(data.config.value("strategy", ""));
  return strategy != nullptr && strategy->drafts_with_target;
}

std::size_t draft_depth(const StepRecord& step) {
  std::vector<std::size_t> depth(step.drafted.size() + 1, 0);  // [nodes], the pending token first
  for (std::size_t i = 0; i < step.drafted.size(); ++i) {
    const auto parent = static_cast<std::size_t>(step.drafted[i].parent);
    depth[i + 1] = 1 + (parent <= i ? depth[parent] : 0);
  }
  return std::ranges::max(depth);
}

double emitted_tokens(const LineRecord& line) {
  double count = 0;
  for (const GenerationRecord& turn : line.turns) {
    for (const StepRecord& step : turn.steps) count += step.emitted;
  }
  return count;
}

double step_count(const LineRecord& line) {
  double count = 0;
  for (const GenerationRecord& turn : line.turns) count += static_cast<double>(turn.steps.size());
  return count;
}

std::size_t common_repeats(const CaseData& data) {
  std::size_t repeats = SIZE_MAX;
  for (const auto& prompt : data.lines) {
    for (const auto& seed : *prompt) repeats = std::min(repeats, seed.size());
  }
  return data.lines.empty() ? 0 : repeats;
}

Work target_work(const CaseData& data) {
  Work sum;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) sum += turn.target;
  });
  return sum;
}

Work draft_work(const CaseData& data) {
  Work sum;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) sum += turn.draft;
  });
  return sum;
}

std::vector<std::string> draft_names(const json& config) {
  if (const auto several = config.find("drafts"); several != config.end())
    return several->get<std::vector<std::string>>();
  const auto one = config.find("draft");
  if (one == config.end() || !one->is_string()) return {};
  return {one->get<std::string>()};
}

std::vector<Work> work_by_draft(const CaseData& data) {
  std::vector<Work> sums;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      sums.resize(std::max(sums.size(), turn.drafts.size()));
      for (std::size_t i = 0; i < turn.drafts.size(); ++i) sums[i] += turn.drafts[i];
    }
  });
  return sums;
}

double total_tokens(const CaseData& data) {
  double sum = 0;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) { sum += emitted_tokens(line); });
  return sum;
}

json interval_json(const std::optional<stats::Interval>& interval) {
  if (!interval) return nullptr;
  return {interval->lo, interval->hi};
}

MetricValue mean_of_prompts(const CaseData& data,
                            const std::map<std::string, std::pair<double, double>>& values) {
  std::vector<double> sum, count;
  for (const std::string& prompt : data.prompts) {
    const auto found = values.find(prompt);
    if (found == values.end()) continue;
    sum.push_back(found->second.first);
    count.push_back(found->second.second);
  }
  return ratio_of_sums(data, sum, count);
}

MetricValue ratio_of_sums(const CaseData& data, const std::vector<double>& numerator,
                          const std::vector<double>& denominator) {
  double above = 0, below = 0;
  for (std::size_t i = 0; i < numerator.size(); ++i) above += numerator[i], below += denominator[i];
  if (below == 0) return {};
  MetricValue result{above / below, nullptr};
  if (data.intervals) {
    result.ci95 =
        interval_json(stats::bootstrap_interval(numerator.size(), [&](std::span<const std::size_t> drawn) {
          double a = 0, b = 0;
          for (const std::size_t i : drawn) a += numerator[i], b += denominator[i];
          return a / b;
        }));
  }
  return result;
}

}  // namespace speclab
