#include "core/theory/step_costs.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

void require_lengths(const DraftLengths& lengths) {
  double total = 0;
  for (double weight : lengths) total += require_non_negative("weight of a draft length", weight);
  if (!(total > 0)) throw Error({"draft lengths", "no steps", "at least one step", ""});
  require_gamma("longest draft", static_cast<int>(lengths.size()) - 1);
}

template <typename Objective>
OptimalGamma argmax(int max_gamma, Objective&& speedup) {
  OptimalGamma best{0, speedup(0), false};
  for (int gamma = 1; gamma <= max_gamma; ++gamma) {
    const double value = speedup(gamma);
    if (value > best.speedup) best = {gamma, value, false};
  }
  best.at_limit = max_gamma > 0 && best.gamma == max_gamma;
  return best;
}

}  // namespace

RowTimes::RowTimes(double t) : times_{{1, require_positive("t(n)", t)}} {}

RowTimes::RowTimes(std::map<int, double> times) : times_(std::move(times)) {
  if (times_.empty() || times_.begin()->first != 1) {
    throw Error({"times of a forward by rows",
                 times_.empty() ? "none" : fmt::format("n = {} as the smallest n", times_.begin()->first),
                 "n = 1 as the smallest n", "Measure the one-row forward too: every ratio refers to it."});
  }
  for (const auto& [rows, time] : times_) require_positive("t(n)", time);
}

RowTimes RowTimes::monotone() const {
  struct Pool {
    double sum = 0;
    int count = 0;
    double mean() const { return sum / count; }
  };
  std::vector<Pool> pools;
  for (const auto& [rows, time] : times_) {
    pools.push_back({time, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().sum += last.sum, pools.back().count += last.count;
    }
  }
  std::map<int, double> times = times_;
  auto point = times.begin();
  for (const Pool& pool : pools) {
    for (int i = 0; i < pool.count; ++i, ++point) point->second = pool.mean();
  }
  return RowTimes(std::move(times));
}

RowTimes RowTimes::after_drafting(double share) const {
  require_probability("share of a forward", share);
  std::map<int, double> times = times_;
  for (auto& [rows, time] : times) time = share * times_.begin()->second + (1 - share) * time;
  return RowTimes(std::move(times));
}

double RowTimes::at(int rows) const {
  if (rows < 1) throw Error({"rows of a forward", fmt::format("{}", rows), "at least 1", ""});
  const auto right = times_.lower_bound(rows);
  if (right != times_.end() && right->first == rows) return right->second;
  if (right == times_.end()) {
    const auto last = std::prev(right);
    if (flat()) return last->second;
    const auto before = std::prev(last);
    const double slope = (last->second - before->second) / (last->first - before->first);
    return last->second + std::max(0.0, slope) * (rows - last->first);
  }
  const auto left = std::prev(right);
  const double share = static_cast<double>(rows - left->first) / (right->first - left->first);
  return left->second + share * (right->second - left->second);
}

double RowTimes::at_mean(double rows) const {
  return between_whole_rows(rows, [this](int whole) { return at(whole); });
}

double positional_expected_tokens(std::span<const double> acceptance) {
  double tokens = 1, reached = 1;
  for (double a : acceptance) tokens += reached *= require_probability("acceptance at a position", a);
  return tokens;
}

DraftLengths constant_draft_length(int gamma) {
  DraftLengths lengths(require_gamma("gamma", gamma) + 1);
  lengths.back() = 1;
  return lengths;
}

double mean_draft_length(const DraftLengths& lengths) {
  require_lengths(lengths);
  double sum = 0, total = 0;
  for (std::size_t g = 0; g < lengths.size(); ++g) {
    sum += lengths[g] * g;
    total += lengths[g];
  }
  return sum / total;
}

double mixture_expected_tokens(double alpha, const DraftLengths& lengths) {
  require_lengths(lengths);
  double tokens = 0, total = 0;
  for (std::size_t g = 0; g < lengths.size(); ++g) {
    tokens += lengths[g] * expected_tokens(alpha, static_cast<int>(g));
    total += lengths[g];
  }
  return tokens / total;
}

double mixture_speedup(double alpha, double c, const DraftLengths& lengths, const RowTimes& target) {
  const double tokens = mixture_expected_tokens(alpha, lengths);
  require_non_negative("c", c);
  double cost = 0, total = 0;
  for (std::size_t g = 0; g < lengths.size(); ++g) {
    if (lengths[g] == 0) continue;
    cost += lengths[g] * (g * c + target.ratio(static_cast<int>(g) + 1));
    total += lengths[g];
  }
  return tokens / (cost / total);
}

OptimalGamma optimal_gamma_at_costs(double alpha, double c, const RowTimes& target, int max_gamma) {
  require_gamma("max_gamma", max_gamma);
  const RowTimes fit = target.monotone();
  return argmax(max_gamma, [&](int g) { return walltime_improvement(alpha, g, c, fit.ratio(g + 1)); });
}

OptimalGamma optimal_gamma_positional(std::span<const double> acceptance, double c, const RowTimes& target) {
  const RowTimes fit = target.monotone();
  return argmax(static_cast<int>(acceptance.size()), [&](int g) {
    return positional_expected_tokens(acceptance.first(g)) / break_even_tokens(g, c, fit.ratio(g + 1));
  });
}

std::optional<double> break_even_alpha(double c, const RowTimes& target, int max_gamma) {
  const auto gains = [&](double alpha) {
    return optimal_gamma_at_costs(alpha, c, target, max_gamma).gamma > 0;
  };
  if (!gains(1)) return std::nullopt;
  double low = 0, high = 1;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (gains(middle) ? high : low) = middle;
  }
  return high;
}

double measured_cost_speedup(double tau, const StepTimes& times) {
  require_positive("tau", tau);
  require_positive("t_ar", times.t_ar);
  require_non_negative("draft time", times.draft);
  require_positive("target time", times.target);
  require_non_negative("accept time", times.accept);
  require_non_negative("other time", times.other);
  return tau * times.t_ar / times.total();
}

double chen_r(double tau, int k) {
  require_gamma("K", k);
  return require_range("tau", tau, 0, k + 1.0) / (k + 1.0);
}

double chen_ratio(double r, int k, double t_draft, double t_target) {
  require_non_negative("t_draft", t_draft);
  require_positive("t_target", t_target);
  return chen_limit(r, k) * t_target / (k * t_draft + t_target);
}

double chen_limit(double r, int k) { return require_probability("r'", r) * (require_gamma("K", k) + 1.0); }

double lookahead_expected_tokens(double alpha, int length, double branches) {
  require_probability("alpha", alpha);
  require_gamma("length", length);
  require_non_negative("branches", branches);
  double tokens = length + 1.0, reached = 1;
  for (int i = 1; i <= length; ++i) {
    reached *= alpha;
    tokens -= std::pow(1 - reached, branches);
  }
  return tokens;
}

double lookahead_step_compression(double expected_tokens, double f) {
  require_range("expected tokens", expected_tokens, 1, kMaxGamma + 1.0);
  require_range("f", f, 1, kMaxGamma);
  return (f - 1 + expected_tokens) / f;
}

}  // namespace speclab::theory
