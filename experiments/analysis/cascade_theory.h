#pragma once

#include <vector>

#include "core/theory/predictions.h"
#include "experiments/metrics/run_data.h"

/// Predicts tau and speedup of a case in which several drafts make one chain by a matrix K
/// (StrategyInfo::length_matrix, theory::MatrixCascade).
namespace speclab {

/// The acceptance of each draft is measured at its place in K: in row 0 from the verdicts of the target, in
/// the other rows from the reviews of the drafts. The costs of the drafts are those of the calibration. The
/// predictions are averages over all steps of the case, with chains as long as those of the case:
///   cascade_tau (tau), cascade_forwards (draft_calls), cascade_ewif (speedup with t(n) = 1, as in the
///   paper), cascade_measured_t (speedup with the calibrated t(n)).
/// Empty for other cases, for a case with "budget": "auto", where K only limits the lengths, and for a
/// record without the reviews that K asks for. Without a calibration there are no speedups.
std::vector<theory::Prediction> matrix_predictions(const CaseData& data);

}  // namespace speclab
