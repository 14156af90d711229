#include "core/theory/explained/resampled_values.h"

#include <cmath>

namespace speclab::theory {

void ResampledValues::add(const std::map<std::string, double>& values) {
  for (const auto& [name, value] : values) values_[name].push_back(value);
  ++defined_;
}

std::optional<stats::Interval> ResampledValues::interval(const std::string& name, double otherwise) const {
  constexpr double kLevel = .95;
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  std::vector<double> values = found->second;
  values.resize(defined_, otherwise);
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty() || 2 * values.size() < defined_ + undefined_) return std::nullopt;
  return stats::Interval{stats::quantile(values, (1 - kLevel) / 2),
                         stats::quantile(values, (1 + kLevel) / 2)};
}

}  // namespace speclab::theory
