#include "experiments/metrics/machine_drift.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/measure/stats.h"

namespace speclab {

using nlohmann::json;

std::vector<double> round_factors(std::span<const json* const> rounds, bool of_device) {
  std::map<std::string, std::vector<double>> times;
  for (const json* round : rounds) {
    const json& measured = of_device ? round->at("device") : *round;
    for (const auto& [rows, ns] : measured.at("t_n_ns").items()) times[rows].push_back(ns.get<double>());
  }
  std::vector<double> factors(rounds.size());
  double sizes = 0;
  for (const auto& [rows, ns] : times) {
    const double mean = stats::mean(ns);
    if (ns.size() != rounds.size() || !(mean > 0)) continue;
    for (std::size_t i = 0; i < ns.size(); ++i) factors[i] += ns[i] / mean;
    ++sizes;
  }
  for (double& factor : factors) factor = sizes > 0 ? factor / sizes : 1;
  return factors;
}

MachineDrift::MachineDrift(std::span<const json> rounds) {
  std::vector<const json*> all;
  for (const json& round : rounds) {
    if (round.value("shard", json()) != rounds.front().value("shard", json())) return;
    all.push_back(&round);
  }
  factors_ = round_factors(all);
}

std::optional<double> MachineDrift::across_run() const {
  constexpr std::size_t kParts = 3, kLeastRounds = 2;
  if (factors_.size() < kParts * kLeastRounds) return std::nullopt;
  const auto part = [&](std::size_t i) {
    const std::size_t begin = i * factors_.size() / kParts, end = (i + 1) * factors_.size() / kParts;
    return stats::mean(std::span(factors_).subspan(begin, end - begin));
  };
  const auto [least, most] = std::minmax({part(0), part(1), part(2)});
  if (!(least > 0)) return std::nullopt;
  return most / least - 1;
}

std::optional<double> MachineDrift::during(const LineRecord& line, const theory::RowTimes& target) const {
  if (!line.drift.empty()) {
    double sum = 0;
    for (const TimedForward& forward : line.drift)
      sum += static_cast<double>(forward.ns) / target.at(forward.rows);
    return sum / static_cast<double>(line.drift.size());
  }
  const int rounds = line.calibration_rounds;
  if (factors_.empty() || rounds < 0) return std::nullopt;
  const auto next = std::min(static_cast<std::size_t>(rounds), factors_.size() - 1);
  const auto last = std::min(static_cast<std::size_t>(std::max(rounds - 1, 0)), factors_.size() - 1);
  return (factors_[last] + factors_[next]) / 2;
}

}  // namespace speclab
