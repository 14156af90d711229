#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/metrics/run_data.h"

/// A device with a table of times knows the times of some numbers of rows only. Times between them are
/// interpolated, and times above the largest one are extrapolated. These functions say where that matters.
namespace speclab {

/// The rows that a forward of each model needs in the steps of a run, for a batch of sequences. The target's
/// number, under "", is the largest of all steps. The number of a draft model, under its name, is the largest
/// over the cases of its mean per forward, rounded up.
std::map<std::string, int> largest_forwards(const RunData& run, int batch);

/// The measured numbers of rows of a device, by model, from the content of a device file of kind "table"
/// (configs/devices/README.md) or of the summary.json of a run. If the table has several contexts, these are
/// the numbers that all of them have. Empty for other devices.
std::map<std::string, std::vector<int>> measured_rows_of(const nlohmann::json& device);

/// The content that measured_rows_of() reads, for a device as open_device() takes it: a name in
/// configs/devices, a device file, or the folder of a run.
nlohmann::json device_content(const std::string& name);

/// Sentences for people about the holes that the forwards meet. A hole is a gap between neighbouring measured
/// numbers of rows, the larger more than twice the smaller, or the range above the largest number. A model
/// that the table does not have is left out.
std::vector<std::string> hole_notes(const std::map<std::string, std::vector<int>>& measured,
                                    const std::map<std::string, int>& largest);

}  // namespace speclab
