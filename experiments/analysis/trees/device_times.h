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

/// Prices forwards of the models of a run on a device, at batch 1 and at the run's mean number of committed
/// tokens. The draft is the one of the trees that tree_grid_of() would choose from. `device` is a name in
/// configs/devices, a device file, or the folder of a run (open_device()). `target` has the times of 1 to
/// wish.nodes rows; of a device with a table, at most as many rows as the table.
/// Throws Error as tree_grid_of() does for a run without trees, as open_device() does, if the device cannot
/// price a model, if it is a run with another target or another draft of this name, and if its table has a
/// single number of rows.
DeviceTimes device_times(const RunData& run, const TreeWish& wish, const std::string& device);

}  // namespace speclab
