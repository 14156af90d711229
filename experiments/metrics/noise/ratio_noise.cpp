#include "experiments/metrics/noise/ratio_noise.h"

#include <cmath>
#include <vector>

namespace speclab {
namespace {

/// The log of the speedup in each repeat, [repeats]. Empty when the times of a repeat are 0.
std::vector<double> log_speedups(const CaseData& data) {
  const PairedTimes times = paired_times(*data.reference, data, false);
  if (times.test.empty()) return {};
  std::vector<double> out;
  for (std::size_t repeat = 0; repeat < times.test.front().size(); ++repeat) {
    double base = 0, test = 0;
    for (std::size_t prompt = 0; prompt < times.test.size(); ++prompt)
      base += times.base[prompt][repeat], test += times.test[prompt][repeat];
    if (base <= 0 || test <= 0) return {};
    out.push_back(std::log(base / test));
  }
  return out;
}

}  // namespace

std::optional<double> ratio_noise(std::span<const std::shared_ptr<CaseData>> cases) {
  std::vector<double> gaps;
  for (const auto& data : cases) {
    if (!data->reference || data->lines.empty() || data->unequal()) continue;
    const std::vector<double> speedups = log_speedups(*data);
    for (std::size_t i = 0; i < speedups.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) gaps.push_back(std::abs(speedups[i] - speedups[j]));
    }
  }
  if (gaps.empty()) return std::nullopt;
  return std::expm1(stats::quantile(gaps, .95));
}

}  // namespace speclab
