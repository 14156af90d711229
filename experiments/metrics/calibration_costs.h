#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/theory/step_costs.h"

namespace speclab {

/// The cost of a part of a step, such as drafting: ns = constant + slope x count. Neither constant nor
/// slope is below 0.
struct LinearCost {
  double constant = 0, slope = 0;
};
/// Fits a cost to (count, ns) samples. It takes the mean of the samples of each count, without the smallest
/// and largest 5 %, and fits a line to these means by least squares, each mean weighted by its number of
/// samples. If all samples have one count above 0, the line goes through the origin. If all counts are 0, the
/// line is constant.
LinearCost fit_cost(const std::multimap<int, double>& samples);

/// Makes "calibration" of summary.json, a table of costs, from the rounds in calibration.jsonl. Every time is
/// first divided by how slow the machine was in its round (round_factors). The time of a forward is then the
/// mean of its measurements without the smallest and largest 5 %. The costs of a step are fitted to all steps
/// of a case. The entry of a case that failed in some round is null. The result is null without rounds.
nlohmann::json calibration_costs(std::span<const nlohmann::json> rounds);

/// Makes `count` tables like that of calibration_costs. They show how far the costs could be off by chance
/// (bootstrap). Each table comes from as many rounds as were measured, drawn with repetition. The result is
/// empty with fewer than two rounds. It depends on the arguments alone.
std::vector<nlohmann::json> resampled_costs(std::span<const nlohmann::json> rounds, int count);

/// Which rows of logits stay on the device in the steps of a case. A step does not pay for their download.
struct RowsStay {
  bool target = false;  ///< the device judges the draft
  bool draft = false;   ///< the device also drafts
};

/// Returns the table with the costs that the steps of a case really pay. Rows that stay on the device cost
/// the time by the device's clock; rows that the host reads cost the time until they are on the host. Adds
/// "reference_ns", the time that the reference pays for a forward of one row. Returns the same table if it
/// has no times by the device's clock ("device").
nlohmann::json costs_as_paid(const nlohmann::json& table, const RowsStay& own, const RowsStay& reference);

/// Returns the table with the costs of a case that drafts ahead: times of forwards of both models while both
/// work replace the times of each model alone. "t_n_ns", "t_n" and the entry of the draft model in "drafts"
/// change, and "reference_ns" keeps what the reference pays for a forward of one row. As for other cases, the
/// time of the draft model is the time of its forward, without the draw of the token. In records of earlier
/// versions, which have no "draft_draw_ns", this time contains the draw. Returns the same table for other
/// cases, and if the calibration did not measure the case.
nlohmann::json costs_beside_drafting(const nlohmann::json& table, const std::string& case_id,
                                     const std::string& draft);

/// Returns c of a case that drafts on the target itself: the calibrated time of drafting one token, sampling
/// and the forwards of a draft model included, divided by the time of a target forward of one row. Absent
/// when the table is null or has no costs of the case.
std::optional<double> cost_of_drafting(const nlohmann::json& table, const std::string& case_id);

/// Returns t(n) from a calibration table. Beyond the largest measured n, t(n) is extrapolated with the slope
/// of a line that is fitted to the upper three quarters of the measured range of n. The last two points would
/// not be enough for this, because their times differ by little more than noise.
/// The result holds the extrapolation as a time at twice the largest measured n. So its largest_measured() is
/// 2 x measured_rows().
theory::RowTimes calibrated_row_times(const nlohmann::json& calibration);
/// The largest n whose t(n) the calibration measured.
int measured_rows(const nlohmann::json& calibration);

}  // namespace speclab
