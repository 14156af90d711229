#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "core/theory/lookahead.h"
#include "experiments/metrics/run_data.h"

/// The law of lookahead decoding (core/theory/lookahead.h) fitted to the cases of a run, and what the law
/// predicts and recommends.
namespace speclab {

/// The name of the run's own machine in "machines" of a fit.
inline constexpr const char* kThisMachine = "this one, calibrated t(n)";

/// "lookahead" of summary.json. Fits the law of lookahead decoding to each group of cases that differ only in
/// W (columns of the window), N (n-gram size) and G (guesses, see lookahead_shape()). An entry holds the law,
/// its error on cells (settings W, N, G) and prompts that the fit did not see
/// (core/theory/lookahead_hold_out.h), and the settings that it recommends for this machine and for a machine
/// on which many rows cost no more than one row (free_row_times). The groups hold only cases that run on one
/// device, have "budget": "fixed" and W and G of at least 1, and equal their reference where they must. An
/// empty array if no group has two cases.
nlohmann::json lookahead_fits(std::span<const std::shared_ptr<CaseData>> cases,
                              const nlohmann::json& calibration);

/// The (W, N, G) of the law, from the options of a case. Here G is the largest number of guesses in a step;
/// -1 means no limit. Two options limit this number: the option V directly (0: no limit), and the option G,
/// the number of n-grams that the pool keeps for a token (-1: no limit). The smaller limit counts: a pool
/// that keeps the newest G gives the same V guesses as a pool that keeps V.
theory::LookaheadShape lookahead_shape(const nlohmann::json& options);

/// The law in an entry of lookahead_fits().
theory::LookaheadLaw lookahead_law(const nlohmann::json& fit);

/// An entry of "machines" of a fit: what the law recommends for a machine with these forward times.
nlohmann::json lookahead_machine(const std::string& name, const nlohmann::json& fit,
                                 const theory::RowTimes& target);

/// The forward times of a machine on which up to `rows` rows take as long as one row. Above that number, the
/// time grows in proportion to the rows.
theory::RowTimes free_row_times(int rows);

/// The prediction of tau for a case: `lookahead_eq7` (W = G) or `lookahead_eq7_extended`. If the grid is
/// large enough, the prediction comes from a fit that left out all cells with the same W as the case (or with
/// the same N, if the cell has no prediction without its W). `tau` is the measured value or null. The result
/// is an empty object when no fit contains the case.
nlohmann::json lookahead_prediction(const nlohmann::json& fits, const std::string& case_id,
                                    const nlohmann::json& tau);

/// The recommendation of an entry of "machines" as a sentence. The sentence says so if the recommendation is
/// degenerate (W = 1) or if autoregressive decoding is recommended instead.
std::string lookahead_sentence(const nlohmann::json& machine);

/// The fits of a summary as text with a table for each; "" when there are none.
std::string lookahead_text(const nlohmann::json& summary);

}  // namespace speclab
