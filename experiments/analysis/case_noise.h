#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>

#include "core/theory/explain.h"
#include "experiments/metrics/run_data.h"

/// Computes how the machine and chance change the speedup of a case: the effect of drift of the machine
/// between lines, and resamples of prompts and calibration rounds, from which intervals are made.
namespace speclab {

/// Returns the factor by which drift of the machine changes the speedup of a case. `target`: calibrated times
/// of target forwards. Absent when the drift during some line is unknown.
std::optional<theory::Drift> case_drift(const CaseData& data, const theory::RowTimes& target);

/// One bootstrap resample of a case. Prompts are drawn with repetition, and the costs come from calibration
/// rounds that were drawn in the same way.
struct CaseResample {
  std::span<const std::size_t> prompts;  ///< indices of the drawn prompts, as many as the case has
  const nlohmann::json& table;           ///< the costs, as calibration_costs() gives them
  theory::Calibration calibration;       ///< the costs of the case
  double speedup = 0;                    ///< measured on the drawn prompts; NaN without tokens or time
  std::optional<theory::Drift> drift;    ///< during the lines of the drawn prompts
};

/// Calls `visit` for each resample of the case. A null argument means that the case or its reference failed
/// in the drawn rounds. The draws depend on the number of prompts and of rounds alone. There are no resamples
/// without resampled calibrations, for a part of a case (CaseData::intervals is false), with fewer than two
/// prompts, and when `prompts` is not the number of prompts that the case and its reference share.
void for_each_resample(const CaseData& data, std::size_t prompts,
                       const std::function<void(const CaseResample*)>& visit);

}  // namespace speclab
