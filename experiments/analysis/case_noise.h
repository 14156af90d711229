#pragma once

#include <functional>
#include <optional>
#include <span>

#include "core/theory/explain.h"
#include "experiments/metrics/run_data.h"

/// What chance and the machine do to the speedup of a case: drift of the machine between the lines, and the
/// interval of the part of a speedup that stays unexplained.
namespace speclab {

/// The factor that drift of the machine puts on the speedup of a case. `target`: calibrated times of target
/// forwards. Absent when the drift is not known for all lines.
std::optional<theory::Drift> case_drift(const CaseData& data, const theory::RowTimes& target);

/// The modelled speedup over the prompts with the indices `drawn` under the costs `calibration`; NaN when
/// there is none.
using ModelledSpeedup =
    std::function<double(std::span<const std::size_t> drawn, const theory::Calibration& calibration)>;

/// How far noise alone could move what is unexplained. Prompts and calibration rounds are both drawn anew
/// (bootstrap); the tokens and draft lengths of the drawn prompts go with them. Empty intervals without
/// resampled calibrations, or when `prompts` is not the number of prompts that the case and its reference
/// share.
theory::ResidualIntervals residual_intervals(const CaseData& data, std::size_t prompts,
                                             const ModelledSpeedup& modelled);

}  // namespace speclab
