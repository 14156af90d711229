#include "core/simulate/timelines/batch.h"

#include <limits>

#include "core/theory/domain.h"

namespace speclab::simulate {

BatchRange paying_batches(const BatchCosts& costs, double tau, double rows) {
  using theory::require_non_negative;
  constexpr double kAll = std::numeric_limits<double>::infinity();
  theory::require_range("tau", tau, 1, theory::kMaxGamma + 1.0);
  theory::require_range("rows", rows, 1, theory::kMaxGamma + 1.0);
  const double floor = require_non_negative("floor", costs.floor);
  const double gained = tau * (floor + require_non_negative("time of the weights", costs.weights)) - floor -
                        require_non_negative("time of drafting", costs.draft);
  const double paid = rows * require_non_negative("time of a row", costs.row) +
                      require_non_negative("time of drafting for a sequence", costs.draft_sequence) -
                      tau * require_non_negative("time of a cache", costs.cache);
  if (gained > 0) return {0, paid > 0 ? gained / paid : kAll};
  return paid < 0 ? BatchRange{gained / paid, kAll} : BatchRange{};
}

}  // namespace speclab::simulate
