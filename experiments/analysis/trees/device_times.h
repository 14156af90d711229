#pragma once

#include <string>
#include <vector>

#include "core/theory/step_costs.h"
#include "experiments/analysis/trees/tree_choice.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// The times that the choice of a tree needs, from a simulated device.
struct DeviceTimes {
  std::string machine;      ///< for people: "H100 SXM 80 GB (simulated)"
  theory::RowTimes target;  ///< time of a target forward by its number of rows, in nanoseconds
  double c = 0;             ///< time of a draft forward / of a target forward, one row each
  /// Sentences for people about numbers of rows for which a table of times has no measurement.
  std::vector<std::string> notes;
};

/// Prices forwards of the models of a run on a device. The batch is 1. The context is the run's mean number
/// of committed tokens, or 0 if the run has no reference. The draft is the one of the trees that
/// tree_grid_of() would choose from. `device` is a name in configs/devices, a device file, or the folder of a
/// run (open_device()). `target` has the times of 1 to wish.nodes rows. If the device has a table of times,
/// the largest number of rows in the table is also a limit.
///
/// Throws Error for a run without trees, as tree_grid_of() does, and where open_device() throws it. It also
/// throws Error if the device cannot price a model, if the device is a run with another target or another
/// draft of this name, and if its table has only the times of forwards with one row.
DeviceTimes device_times(const RunData& run, const TreeWish& wish, const std::string& device);

}  // namespace speclab
