#pragma once

#include <vector>

#include "core/theory/predictions.h"
#include "experiments/metrics/run_data.h"

/// Predicts tau and speedup of a case in which several drafts make one chain by a matrix K
/// (StrategyInfo::length_matrix, theory::MatrixCascade).
namespace speclab {

/// The acceptance of each draft is measured at its place in K: in row 0 from the verdicts of the target, in
/// the other rows from reviews, in which a draft judges a smaller draft's tokens. The costs of the drafts
/// come from the calibration. The predictions are averages over all steps, with the chains of the case. The
/// word in parentheses is the metric that is predicted:
///   cascade_tau (tau), cascade_forwards (draft_calls), cascade_ewif (speedup with t(n) = 1, as in Chen et
///   al. 2023), cascade_measured_t (speedup with the calibrated t(n)).
/// Empty for cases without K, for cases without drafts, for a case with "budget": "auto", where K only limits
/// the lengths, and for a record that lacks the reviews for which K asks or names an unknown draft. There are
/// no speedups unless the calibration measured every draft.
std::vector<theory::Prediction> matrix_predictions(const CaseData& data);

}  // namespace speclab
