#pragma once

#include <optional>
#include <set>
#include <string>

#include "core/theory/explain.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// The costs that price a measured case.
struct PricedCase {
  std::optional<theory::Calibration> costs = {};  ///< absent if there are none
  bool calibrated = false;                        ///< true: measured for the case itself
};

/// Prices measured cases by the calibration of their own run or by the calibration of another run. If the
/// other run lacks a case, PricedCase::calibrated is false for it. All times are in nanoseconds.
class CheckPrices {
 public:
  /// `other`: the run whose calibration is used; null: the measured run itself. `other` must live as long as
  /// this object.
  explicit CheckPrices(const RunData* other = nullptr) : other_(other) {}
  /// The costs of a case of `measured`. With another run they are
  /// - the costs of the other run's case with this id, if it has the same drafter (same_drafter);
  /// - else the costs of the other run's first calibrated case with the same drafter;
  /// - else costs that are put together from the other run's table: t(n); the forwards of the draft models,
  ///   with as many forwards and rows for each drafted token as the record counts; and what an autoregressive
  ///   step takes besides its forward. Copied tokens then cost nothing. There are no costs for a case that
  ///   drafts with the target itself, that feeds probes, or whose draft model or reference the table lacks.
  PricedCase of(const CaseData& data, const RunData& measured) const;

 private:
  const RunData* other_;
};

/// The prompts of `measured` that `other` has with the same text, by id. A prompt whose text one of the
/// records does not keep is compared by its id alone.
std::set<std::string> shared_prompts(const RunData& measured, const RunData& other);

}  // namespace speclab
