#include "core/theory/reliability.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace speclab::theory {

std::optional<Reliability> reliability(std::vector<Forecast> forecasts, int bins) {
  SPECLAB_CHECK(bins >= 1, "{} bins", bins);
  if (forecasts.empty()) return std::nullopt;
  std::ranges::sort(forecasts, {}, &Forecast::probability);
  const std::size_t all = forecasts.size();
  Reliability out;
  std::size_t begin = 0;
  for (int bin = 1; bin <= bins; ++bin) {
    std::size_t end = all * static_cast<std::size_t>(bin) / static_cast<std::size_t>(bins);
    while (end > 0 && end < all && forecasts[end].probability == forecasts[end - 1].probability) ++end;
    if (end <= begin) continue;
    double forecast = 0;
    int happened = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const double outcome = forecasts[i].happened ? 1 : 0, error = forecasts[i].probability - outcome;
      out.brier += error * error / static_cast<double>(all);
      forecast += forecasts[i].probability;
      happened += forecasts[i].happened ? 1 : 0;
    }
    const auto count = static_cast<double>(end - begin);
    out.bins.push_back({forecast / count, happened / count, static_cast<int>(end - begin)});
    out.ece += count / static_cast<double>(all) * std::abs(out.bins.back().forecast - out.bins.back().share);
    begin = end;
  }
  return out;
}

}  // namespace speclab::theory
