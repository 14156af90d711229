// Metrics of time: most are medians over repeats, some with intervals by a bootstrap over prompts.
#include <array>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

/// The median over repeats of sum(above) / sum(below), with its interval. `above` and `below` are functions
/// of a line.
template <class Above, class Below>
MetricValue median_ratio(const CaseData& data, Above above, Below below) {
  const std::size_t repeats = common_repeats(data), prompts = data.lines.size();
  if (repeats == 0) return {};
  std::vector<std::vector<double>> a(repeats, std::vector<double>(prompts, 0.0)), b = a;
  for (std::size_t r = 0; r < repeats; ++r) {
    for_each_line(data, r, [&](std::size_t prompt, const LineRecord& line) {
      a[r][prompt] += above(line);
      b[r][prompt] += below(line);
    });
  }
  const auto over = [&](std::span<const std::size_t> drawn) {
    std::vector<double> ratios;
    for (std::size_t r = 0; r < repeats; ++r) {
      double x = 0, y = 0;
      for (const std::size_t i : drawn) x += a[r][i], y += b[r][i];
      if (!std::isfinite(x / y)) return std::nan("");  // no time passed, or a line lacks the value
      ratios.push_back(x / y);
    }
    return stats::median(ratios);
  };
  std::vector<std::size_t> all(prompts);
  for (std::size_t i = 0; i < prompts; ++i) all[i] = i;
  const double value = over(all);
  if (std::isnan(value)) return {};
  MetricValue result{value, nullptr};
  if (data.intervals) result.ci95 = interval_json(stats::bootstrap_interval(prompts, over));
  return result;
}

double wall_ms(const LineRecord& line) { return static_cast<double>(line.decode_ns()) * 1e-6; }

MetricValue ms_per_token(const CaseData& data) { return median_ratio(data, wall_ms, emitted_tokens); }
MetricValue ms_per_step(const CaseData& data) { return median_ratio(data, wall_ms, step_count); }
MetricValue tokens_per_second(const CaseData& data) {
  return median_ratio(data, emitted_tokens, [](const LineRecord& line) { return wall_ms(line) * 1e-3; });
}

MetricValue ms_per_token_sd(const CaseData& data) {
  std::vector<double> times;
  for (std::size_t r = 0; r < common_repeats(data); ++r) {
    for_each_line(data, r, [&](std::size_t, const LineRecord& line) {
      for (const GenerationRecord& turn : line.turns) {
        for (const StepRecord& step : turn.steps) {
          if (step.emitted > 0)
            times.push_back(static_cast<double>(step.times.total()) * 1e-6 / step.emitted);
        }
      }
    });
  }
  if (times.size() < 2) return {};
  return {std::sqrt(stats::variance(times)), nullptr};
}

MetricValue speedup_of(const CaseData& data, bool with_prefill) {
  if (!data.reference) return {};
  const auto ratio = speed_ratio(*data.reference, data, with_prefill, data.bootstrap());
  if (!ratio) return {};  // nothing was decoded after the first token
  return {ratio->value, interval_json(ratio->ci)};
}

MetricValue speedup(const CaseData& data) { return speedup_of(data, false); }
MetricValue speedup_end_to_end(const CaseData& data) { return speedup_of(data, true); }

/// The speed of a case with trees divided by the speed of the best chain of its run.
MetricValue speed_over_chain(const CaseData& data) {
  if (!data.best_chain) return {};
  const auto ratio = speed_ratio(*data.best_chain, data, false, data.bootstrap());
  if (!ratio) return {};
  return {ratio->value, interval_json(ratio->ci)};
}

MetricValue time_to_first_token(const CaseData& data) {
  return median_ratio(
      data,
      [](const LineRecord& line) {
        double ms = 0;
        for (const GenerationRecord& turn : line.turns)
          ms += static_cast<double>(turn.prefill_ns + turn.observe_prompt_ns) * 1e-6;
        return ms;
      },
      [](const LineRecord& line) { return static_cast<double>(line.turns.size()); });
}

template <Phase phase>
MetricValue time_of(const CaseData& data) {
  return median_ratio(
      data,
      [](const LineRecord& line) {
        double ms = 0;
        for (const GenerationRecord& turn : line.turns) {
          for (const StepRecord& step : turn.steps) ms += static_cast<double>(step.times[phase]) * 1e-6;
        }
        return ms;
      },
      step_count);
}

/// The sum of one time of AheadWork over those steps of the line that drafted ahead, in ms.
template <std::int64_t AheadWork::* time>
double ahead_ms(const LineRecord& line) {
  double ms = 0;
  for (const GenerationRecord& turn : line.turns) {
    for (const StepRecord& step : turn.steps) {
      if (step.ahead) ms += static_cast<double>((*step.ahead).*time) * 1e-6;
    }
  }
  return ms;
}

MetricValue ahead_overlapped(const CaseData& data) {
  return median_ratio(data, ahead_ms<&AheadWork::overlapped_ns>, ahead_ms<&AheadWork::ns>);
}

MetricValue time_waited(const CaseData& data) {
  if (!any_step(data, [](const StepRecord& step) { return step.ahead.has_value(); })) return {};
  return median_ratio(data, ahead_ms<&AheadWork::waited_ns>, step_count);
}

MetricValue overhead_share(const CaseData& data) {
  const auto ms = [](const LineRecord& line, std::initializer_list<Phase> phases) {
    double sum = 0;
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) {
        for (const Phase phase : phases) sum += static_cast<double>(step.times[phase]) * 1e-6;
      }
    }
    return sum;
  };
  return median_ratio(
      data, [&](const LineRecord& line) { return ms(line, {Phase::accept, Phase::other}); },
      [&](const LineRecord& line) {
        return ms(line, {Phase::draft, Phase::target, Phase::accept, Phase::other});
      });
}

MetricValue cpu_share(const CaseData& data) {
  const double threads = data.environment.value("threads", 0.0);
  if (threads <= 0) return {};
  MetricValue result = median_ratio(
      data, [](const LineRecord& line) { return static_cast<double>(line.cpu_ns()) * 1e-6; }, wall_ms);
  if (!result.value.is_null()) result.value = result.value.get<double>() / threads;
  return {result.value, nullptr};
}

/// The work of all forwards per second as a share of a measured limit of the machine. The limit is a field of
/// environment.json. `amount` is a function of a turn.
template <class Amount>
MetricValue share_of_limit(const CaseData& data, const char* limit_name, Amount amount) {
  const double limit = data.environment.value(limit_name, 0.0);
  if (limit <= 0) return {};
  const MetricValue rate = median_ratio(
      data,
      [&](const LineRecord& line) {
        double sum = 0;
        for (const GenerationRecord& turn : line.turns) sum += amount(turn);
        return sum;
      },
      [](const LineRecord& line) { return wall_ms(line) * 1e-3; });
  if (rate.value.is_null()) return {};
  return {rate.value.get<double>() / limit, nullptr};
}

MetricValue read_bandwidth_share(const CaseData& data) {
  return share_of_limit(data, "read_bandwidth_bytes_per_second", [](const GenerationRecord& turn) {
    return turn.target.weight_bytes + turn.target.kv_bytes + turn.draft.weight_bytes + turn.draft.kv_bytes;
  });
}

MetricValue peak_flops_share(const CaseData& data) {
  return share_of_limit(data, "peak_flops",
                        [](const GenerationRecord& turn) { return turn.target.flops + turn.draft.flops; });
}

/// Null when any line has no energy, because the NaN of that line spreads to the sum.
MetricValue energy_per_token(const CaseData& data) {
  return median_ratio(
      data,
      [](const LineRecord& line) {
        return line.gpu.is_object() ? line.gpu.value("joules", std::nan("")) : std::nan("");
      },
      [](const LineRecord& line) {
        double tokens = 0;
        for (const GenerationRecord& turn : line.turns) tokens += static_cast<double>(turn.tokens.size());
        return tokens;
      });
}

MetricValue gpu_busy_share(const CaseData& data) {
  return median_ratio(
      data,
      [](const LineRecord& line) {
        double ms = 0;
        for (const GenerationRecord& turn : line.turns)
          ms += turn.stamped_ns > 0 ? static_cast<double>(turn.stamped_ns) * 1e-6 : std::nan("");
        return ms;
      },
      wall_ms);
}

const std::array kTimeMetrics = {
    Metric{"tokens_per_second", "1/s", "decode only, median over repeats", estimator::kMedianRatio, kHigh,
           true, tokens_per_second},
    Metric{"ms_per_token", "ms", "decode only, median over repeats", estimator::kMedianRatio, kLow, true,
           ms_per_token},
    Metric{"ms_per_token_sd", "ms", "standard deviation over steps of step time per emitted token",
           estimator::kDeviation, kLow, true, ms_per_token_sd},
    Metric{"ms_per_step", "ms", "mean time of a step, median over repeats", estimator::kMedianRatio, kLow,
           true, ms_per_step},
    Metric{"speedup", "ratio",
           "decode time per emitted token of the reference / of the case, median over repeats",
           estimator::kPairedRatio, kHigh, true, speedup},
    Metric{"speed_over_chain", "ratio",
           "a case with trees: time per emitted token of the fastest chain of the same draft in the run / of "
           "the case",
           estimator::kPairedRatio, kHigh, true, speed_over_chain},
    Metric{"speedup_end_to_end", "ratio", "speedup with the prefills of target and draft included",
           estimator::kPairedRatio, kHigh, true, speedup_end_to_end},
    Metric{"time_to_first_token", "ms",
           "target prefill, and what the strategy does with the prompt's hidden states; mean over prompts "
           "and turns",
           estimator::kMedianRatio, kLow, true, time_to_first_token},
    Metric{"time_draft", "ms/step", "drafting, mean over steps", estimator::kMedianRatio, kLow, true,
           time_of<Phase::draft>},
    Metric{"time_target", "ms/step", "the target's forward", estimator::kMedianRatio, kLow, true,
           time_of<Phase::target>},
    Metric{"time_accept", "ms/step", "turning logits rows into distributions, and the rule",
           estimator::kMedianRatio, kLow, true, time_of<Phase::accept>},
    Metric{"time_other", "ms/step", "bookkeeping, cuts at the end of the text, commit, recording",
           estimator::kMedianRatio, kLow, true, time_of<Phase::other>},
    Metric{
        "time_waited", "ms/step",
        "the part of time_draft in which a step waited for the draft that was made during its verification",
        estimator::kMedianRatio, kLow, true, time_waited},
    Metric{"ahead_overlapped", "",
           "drafts made during a verification: share of their time in which the target was verifying",
           estimator::kMedianRatio, kHigh, true, ahead_overlapped},
    Metric{"overhead_share", "",
           "share of the steps' time that is neither drafting nor the target's forward: the rule, trees, "
           "masks, commit, "
           "recording",
           estimator::kMedianRatio, kLow, true, overhead_share},
    Metric{"cpu_share", "",
           "CPU time / (wall time x threads); below 1 if threads waited or the machine was shared",
           estimator::kMedianRatio, kNone, true, cpu_share},
    Metric{"read_bandwidth_share", "",
           "weights and KV bytes of all forwards / time / measured read bandwidth", estimator::kMedianRatio,
           kHigh, true, read_bandwidth_share},
    Metric{"peak_flops_share", "", "operations of all forwards / time / measured peak",
           estimator::kMedianRatio, kHigh, true, peak_flops_share},
    Metric{
        "gpu_busy_share", "",
        "time inside the steps of a device program by the GPU's clock, from a second run with time stamps / "
        "decode time of the run without stamps",
        estimator::kMedianRatio, kHigh, true, gpu_busy_share},
    Metric{"energy_per_token", "J/token",
           "energy of the whole GPU while texts were decoded, prefill included, per token",
           estimator::kMedianRatio, kLow, true, energy_per_token},
};

}  // namespace

std::span<const Metric> time_metrics() { return kTimeMetrics; }

}  // namespace speclab
