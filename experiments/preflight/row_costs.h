#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/metrics/run_data.h"

namespace speclab {

/// How the time of a target forward grows with its number of rows: its floor, and the numbers of rows from
/// which on another row becomes more expensive or cheaper.

/// Consecutive numbers of rows in which each further row costs about the same. Times are in units of a
/// forward over one row.
struct RowStretch {
  int from = 1, to = 1;
  double row_cost = 0;        ///< time of another row inside the stretch: the slope of its line
  double first_row_cost = 0;  ///< line at `from` - line of the stretch before at its `to`; 0 for the first
};

/// Divides t(n), given by n, into stretches by segmented least squares (Bellman 1961, "On the approximation
/// of curves by line segments using dynamic programming"). Each stretch has at least two of the given n and a
/// line of its own. The stretches minimise
///
///   sum over n of ((t(n) - line(n)) / 0.02)^2 + 3 log(N) (number of stretches - 1),
///
/// where N is the number of the given n. The second term is the Bayesian information criterion (Schwarz 1978)
/// for the three parameters of a further stretch: where it begins, and its line. 0.02 is the assumed noise of
/// a calibrated t(n): 2 % of a forward over one row. The n at which a stretch after the first one begins are
/// the change points. A single n gives one stretch, an empty map none.
std::vector<RowStretch> row_stretches(const std::map<int, double>& t);

/// The costs of target forwards on the machine of a calibration. `reference` is the autoregressive case,
/// whose record has the bytes that a forward reads. Returns
///   {"t1_ms": time of a forward over one row,
///    "bytes": bytes of weights and cached positions that such a forward reads and writes | null,
///    "bandwidth": measured read bandwidth of the machine in bytes per second | null,
///    "floor_ms": bytes / bandwidth | null. A forward over more rows has no lower floor, because it reads at
///                least these bytes. The floor assumes that all bytes come from memory; a model that fits
///                into the caches can be faster,
///    "over_floor": t1_ms / floor_ms | null,
///    "change_points": [n],
///    "stretches": [{"from", "to", "row_cost", "first_row_cost"}], see RowStretch}
/// `calibration` is the table of calibration_costs(), not null.
nlohmann::json row_costs(const CaseData& reference, const nlohmann::json& calibration);

/// Sentences for people, one per line.
std::string row_costs_text(const nlohmann::json& costs);

}  // namespace speclab
