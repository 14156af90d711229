#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/metrics/run_data.h"
#include "experiments/simulate/device_file.h"

namespace speclab {

/// What a sweep changes about the machine. Speculation turns arithmetic that would idle into tokens. So a
/// sweep may have a point at which a machine has no arithmetic to spare, and speculation stops paying ("not
/// useful when computation is limited").
enum class SweepAxis {
  ridge,  ///< peak operations / memory bandwidth of a device, in operations per byte
  rows,   ///< free rows: how many rows a target forward takes for the time of one row
  batch,  ///< sequences that a device decodes at the same time
};

inline constexpr int kMostSequences = 1024;  ///< last point of the sweep `batch`

/// The device whose peak the sweep `ridge` changes if no device is named: bandwidth only, no floors. Speedups
/// on it depend on the ratio of peak and bandwidth alone.
SimulatedDevice ideal_device();

/// Prices the recorded steps of every case with a reference along an axis. As in repriced(), acceptance
/// comes from the run.
///   ridge: `device` with its bandwidth and floors, and with the peak that gives each ratio. Throws Error for
///          a device without a roofline.
///   rows:  t(n) = t(1) up to R rows and t(1) n / R above. All other costs come from the run's
///          calibration; `device` is not used.
///   batch: `device` as it is.
/// Returns
///   {"sweep": "ridge" | "rows" | "batch", "unit", "device" | null, "source" | null, "simulation": true,
///    "points": [x, rising],
///    "cases": [{"case", "tau", "speedup": [value at each point] | null,
///               "pays": "always", "never", "above" or "below" the break-even, within the points | null,
///               "break_even": the least ratio, the fewest free rows or the largest batch that pays | null,
///               "closed_form": [from, to | null for no end] of simulate::paying_batches() | null; only for
///                              batch, a case with one draft model, and a plain roofline of one device,
///               "problem": null | why there is no speedup}]}
/// The search for the break-even begins at the end of the axis where the machine has most to spare (large
/// ratios, many free rows, batch 1), and stops at the first point whose speedup is below 1. "never" says that
/// this end itself is below 1. The interval before that point is halved to three digits (ridge) or to a whole
/// number.
nlohmann::json swept(const RunData& run, SweepAxis axis, const SimulatedDevice& device);

/// A table for people: for each case the speedup at some points, and its break-even as a sentence.
std::string swept_text(const nlohmann::json& sweep);

}  // namespace speclab
