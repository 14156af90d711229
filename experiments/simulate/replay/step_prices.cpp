#include "experiments/simulate/replay/step_prices.h"

#include "core/base/error.h"
#include "core/theory/domain.h"
#include "experiments/simulate/replay.h"

namespace speclab {

StepPrices::StepPrices(const theory::Calibration& costs, int longest)
    : reference_(theory::require_positive("t_ar", costs.t_ar)),
      token_(theory::require_non_negative("calibrated time", costs.accept_row)),
      asked_(theory::require_non_negative("calibrated time", costs.draft_step)) {
  for (const double time : {costs.draft_token, costs.draft_step, costs.accept_step, costs.other})
    theory::require_non_negative("calibrated time", time);
  const theory::RowTimes verification = costs.target.after_drafting(costs.done_share);
  for (int drafted = 0; drafted <= longest; ++drafted) {
    by_length_.push_back(costs.draft_step + costs.draft_token * drafted + verification.at(drafted + 1) +
                         costs.accept_step + costs.other);
  }
}

double StepPrices::time(const Replayed& counts) const {
  SPECLAB_CHECK(counts.lengths.size() <= by_length_.size(), "drafts of {} tokens, prices up to {}",
                counts.lengths.size() - 1, longest());
  double sum = token_ * counts.tokens;
  for (std::size_t drafted = 0; drafted < counts.lengths.size(); ++drafted)
    sum += counts.lengths[drafted] * by_length_[drafted];
  return sum;
}

}  // namespace speclab
