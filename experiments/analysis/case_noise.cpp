#include "experiments/analysis/case_noise.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "experiments/analysis/case_costs.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

/// Numbers of decoding steps of a case and of its reference, [prompts][repeats]. `plain` holds the counts. In
/// `slowed`, the count of each line is multiplied by the factor by which the machine was slower during that
/// line.
struct DriftedSteps {
  PairedTimes plain, slowed;
  theory::DriftSource source = theory::DriftSource::lines;

  /// The factor by which drift changes the speedup over these prompts: steps of the reference / steps of the
  /// case, counted with drift (`slowed`), divided by the same ratio without drift (`plain`). Each of the two
  /// ratios is a median over repeats, as the speedup is.
  double factor(std::span<const std::size_t> prompts) const {
    const auto ratio = [&](const PairedTimes& steps) {
      stats::Times base, test;
      for (const std::size_t i : prompts) base.push_back(steps.base[i]), test.push_back(steps.test[i]);
      return stats::paired_ratio(base, test, {.resamples = 1}).value;
    };
    return ratio(slowed) / ratio(plain);
  }
};

std::optional<DriftedSteps> drifted_steps(const CaseData& data, const theory::RowTimes& target) {
  if (!data.drift) return std::nullopt;
  bool known = true;
  std::set<theory::DriftSource> sources;
  const auto steps = [](const LineRecord& line) { return std::max(1.0, step_count(line)); };
  const auto slowed = [&](const LineRecord& line) {
    const std::optional<double> factor = data.drift->during(line, target);
    known = known && factor;
    sources.insert(data.drift->source(line));
    return steps(line) * factor.value_or(1);
  };
  DriftedSteps drifted{paired_values(*data.reference, data, steps),
                       paired_values(*data.reference, data, slowed)};
  if (!known || drifted.plain.test.empty()) return std::nullopt;
  drifted.source = sources.size() == 1 ? *sources.begin() : theory::DriftSource::both;
  return drifted;
}

/// The measured speedup of the case on the prompts with the indices `drawn`; NaN if it is undefined (no
/// tokens or no time).
double speedup_of(const PairedDecoding& both, std::span<const std::size_t> drawn) {
  stats::Decoded base, test;
  for (const std::size_t i : drawn) {
    base.seconds.push_back(both.base.seconds[i]), base.tokens.push_back(both.base.tokens[i]);
    test.seconds.push_back(both.test.seconds[i]), test.tokens.push_back(both.test.tokens[i]);
  }
  const auto ratio = stats::paired_speedup(base, test, {.resamples = 1});
  return ratio ? ratio->value : std::nan("");
}

}  // namespace

std::optional<theory::Drift> case_drift(const CaseData& data, const theory::RowTimes& target) {
  const auto drifted = drifted_steps(data, target);
  if (!drifted) return std::nullopt;
  std::vector<std::size_t> all(drifted->plain.test.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return theory::Drift{drifted->factor(all), drifted->source};
}

void for_each_resample(const CaseData& data, std::size_t prompts,
                       const std::function<void(const CaseResample*)>& visit) {
  if (!data.intervals || !data.resampled_calibrations || data.resampled_calibrations->empty()) return;
  const PairedDecoding both = paired_decoding(*data.reference, data, false);
  if (prompts != both.test.seconds.size()) return;
  std::size_t next = 0;
  const auto draw = [&](std::span<const std::size_t> drawn) {
    const nlohmann::json& table = (*data.resampled_calibrations)[next++];
    auto calibration = calibration_of(data, table);
    if (!calibration) {
      visit(nullptr);
      return 0.0;
    }
    std::optional<theory::Drift> drift;
    if (const auto drifted = drifted_steps(data, calibration->target))
      drift = theory::Drift{drifted->factor(drawn), drifted->source};
    const CaseResample resample{.prompts = drawn,
                                .table = table,
                                .calibration = *std::move(calibration),
                                .speedup = speedup_of(both, drawn),
                                .drift = drift};
    visit(&resample);
    return 0.0;
  };
  // The resamples are the result; the statistic of the bootstrap is not used.
  stats::bootstrap_interval(prompts, draw,
                            {.resamples = static_cast<int>(data.resampled_calibrations->size())});
}

}  // namespace speclab
