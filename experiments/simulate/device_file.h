#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/simulate/virtual_device.h"

namespace speclab {

/// A simulated device and what is known about it.
struct SimulatedDevice {
  std::string name;    ///< for people: "H100 SXM 80 GB"
  std::string kind;    ///< "roofline", "linear", "table" or "run"
  std::string source;  ///< where its numbers come from
  std::string error;   ///< how far off its times may be; empty if that is not known
  std::shared_ptr<const simulate::VirtualDevice> device;
  double weight_bytes = 2;  ///< bytes per weight of every model on this device
  double watts = 0;         ///< power while decoding; 0: not known
  /// Only for kind "run": the run's table of calibrated costs, which includes the costs of the run's cases.
  nlohmann::json calibration;
  /// Only for kind "run": the speedups that the run measured, by case. They are compared with the simulated
  /// ones.
  std::map<std::string, double> measured = {};
};

/// Opens a device by the name of a file in configs/devices ("h100"), by the path of a device file, or by the
/// folder of a run. The folder stands for the machine of the run, with the times of the run's calibration.
/// Throws Error for an unknown name (suggests known ones), for a file that breaks the format of
/// configs/devices/README.md, and for a run without a calibration.
SimulatedDevice open_device(const std::string& name);

/// Makes the device file (kind "table") of the machine that measured the run in `folder`, from its
/// calibration. Throws Error for a run without a calibration.
nlohmann::json exported_device(const std::string& folder);

}  // namespace speclab
