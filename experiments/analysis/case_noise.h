#pragma once

#include <functional>
#include <optional>
#include <span>

#include "core/theory/explain.h"
#include "experiments/metrics/run_data.h"

/// Computes what the machine and chance do to the speedup of a case: the effect of drift of the machine
/// between the lines, and the interval of the part of the speedup that stays unexplained.
namespace speclab {

/// Returns the factor by which drift of the machine changes the speedup of a case. `target`: calibrated times
/// of target forwards. Absent when the drift is not known for all lines.
std::optional<theory::Drift> case_drift(const CaseData& data, const theory::RowTimes& target);

/// The modelled speedup over the prompts with the indices `drawn` under the costs `calibration`; NaN when
/// there is none.
using ModelledSpeedup =
    std::function<double(std::span<const std::size_t> drawn, const theory::Calibration& calibration)>;

/// Returns 95 % intervals of the unexplained share of a step's time, before and after drift is taken out. The
/// bootstrap draws both the prompts and the calibration rounds anew. A drawn prompt brings its tokens and
/// draft lengths with it. The intervals are absent without resampled calibrations, for a part of a case
/// (CaseData::intervals), and when `prompts` is not the number of prompts that the case and its reference
/// share.
theory::ResidualIntervals residual_intervals(const CaseData& data, std::size_t prompts,
                                             const ModelledSpeedup& modelled);

}  // namespace speclab
