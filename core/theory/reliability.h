#pragma once

#include <optional>
#include <vector>

/// Compares probabilities that were forecast with what happened. In SpecLab, the forecast that a token is
/// accepted is the draft's probability of this token, or the prediction of a controller.
namespace speclab::theory {

/// A forecast probability and its outcome.
struct Forecast {
  double probability = 0;
  bool happened = false;
};

/// Forecasts of about equal probability: their mean, the share of them that happened, and their number.
struct ReliabilityBin {
  double forecast = 0, share = 0;
  int count = 0;
};

struct Reliability {
  /// Mean of (probability - outcome)^2, with outcome 1 if `happened` and else 0 (Brier 1950). 0 for
  /// perfect forecasts. Forecasts that always equal the overall share s give s (1 - s).
  double brier = 0;
  /// Expected calibration error (Naeini et al. 2015): the mean over all forecasts of |mean forecast - share|
  /// of their bin. 0 for forecasts that agree with the frequencies. Its expectation is above 0 also for such
  /// forecasts, because the share of a bin of n forecasts is off by about sqrt(s (1 - s) / n).
  double ece = 0;
  std::vector<ReliabilityBin> bins;  ///< ascending forecasts; together they hold all forecasts
};

/// Sorts the forecasts by probability and divides them into `bins` >= 1 bins of equal numbers (Nguyen and
/// O'Connor 2015). Equal probabilities share a bin, so numbers may differ and there may be fewer bins. Absent
/// without forecasts.
std::optional<Reliability> reliability(std::vector<Forecast> forecasts, int bins = 10);

}  // namespace speclab::theory
