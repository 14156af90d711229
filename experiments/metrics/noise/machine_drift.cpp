#include "experiments/metrics/noise/machine_drift.h"

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
  read_probes(all);
}

void MachineDrift::read_probes(std::span<const json* const> rounds) {
  std::vector<MeanProbe> means;  // [rounds]
  for (const json* round : rounds) {
    const auto found = round->find("probes");
    if (found == round->end() || found->empty()) return;
    MeanProbe mean;
    for (const json& probe : *found) {
      mean.memory += probe.at(0).get<double>() / static_cast<double>(found->size());
      mean.arithmetic += probe.at(1).get<double>() / static_cast<double>(found->size());
    }
    means.push_back(mean);
  }
  if (means.empty()) return;
  MeanProbe run;
  for (const MeanProbe& one : means) {
    run.memory += one.memory / static_cast<double>(means.size());
    run.arithmetic += one.arithmetic / static_cast<double>(means.size());
  }
  if (!(run.memory > 0) || !(run.arithmetic > 0)) return;
  probes_ = run;
  // Least squares: factor = a + w (m - a). The factors and the ratios m and a have mean 1 over the rounds.
  double product = 0, square = 0;
  for (std::size_t i = 0; i < means.size(); ++i) {
    const double m = means[i].memory / run.memory, a = means[i].arithmetic / run.arithmetic;
    product += (factors_[i] - a) * (m - a);
    square += (m - a) * (m - a);
  }
  memory_share_ = square > 0 ? std::clamp(product / square, 0.0, 1.0) : .5;
}

theory::DriftSource MachineDrift::source(const LineRecord& line) const {
  if (!line.probes.empty() && probes_) return theory::DriftSource::probes;
  return line.drift.empty() ? theory::DriftSource::rounds : theory::DriftSource::lines;
}

std::optional<double> MachineDrift::memory_share() const {
  return probes_ ? std::optional(memory_share_) : std::nullopt;
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
  const theory::DriftSource from = source(line);
  if (from == theory::DriftSource::probes) {
    double memory = 0, arithmetic = 0;
    for (const ProbeTimes& probe : line.probes) {
      memory += static_cast<double>(probe.memory_ns);
      arithmetic += static_cast<double>(probe.arithmetic_ns);
    }
    const auto count = static_cast<double>(line.probes.size());
    return memory_share_ * memory / count / probes_->memory +
           (1 - memory_share_) * arithmetic / count / probes_->arithmetic;
  }
  if (from == theory::DriftSource::lines) {
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
