#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/simulate/roofline_device.h"
#include "core/simulate/virtual_device.h"

namespace speclab {

/// How a device is described. `run` is the folder of a run. The others are the kinds of device files, which
/// configs/devices/README.md explains.
enum class DeviceKind { roofline, offload, moe, linear, table, run };
std::string_view to_string(DeviceKind kind);  ///< "roofline", "offload", "moe", "linear", "table", "run"

/// A simulated device and what is known about it.
struct SimulatedDevice {
  std::string name;  ///< for people: "H100 SXM 80 GB"
  DeviceKind kind = DeviceKind::roofline;
  std::string source;  ///< where its numbers come from
  std::string error;   ///< how far off its times may be; empty if that is not known
  std::shared_ptr<const simulate::VirtualDevice> device;
  double weight_bytes = 2;  ///< bytes per weight of every model on this device
  double kv_bytes = 2;      ///< bytes per number in a KV cache
  double watts = 0;         ///< power while decoding; 0: not known
  /// What `device` is made of, for the kinds roofline, offload and moe. Sweeps change it.
  std::optional<simulate::RooflineRates> rates = {};
  std::size_t contexts = 1;  ///< number of contexts of a table
  /// For the kind run, and for a table with costs of cases: the table of calibrated costs, which includes the
  /// costs of the cases. Null for other devices.
  nlohmann::json calibration = nullptr;
  /// Only for the kind run: the speedups that the run measured, by case. They are compared with the simulated
  /// ones.
  std::map<std::string, double> measured = {};
};

/// Opens a device by the name of a file in configs/devices ("h100"), by the path of a device file, or by the
/// folder of a run. The folder stands for the machine of the run, with the times of the run's calibration.
/// Throws Error for an unknown name (suggests known ones), for a file that breaks the format of
/// configs/devices/README.md (parse_device), and for a run without a calibration.
SimulatedDevice open_device(const std::string& name);

/// Makes the device file (kind "table") of the machine that measured the run in `folder`, from that
/// run's calibration. `others` are runs of the same models on the same machine whose calibrations have other
/// contexts; the table then has all contexts. The costs of cases come from `folder`. Throws Error for
/// a run without a calibration, for runs of other models or machines, and for two calibrations of one
/// context.
nlohmann::json exported_device(const std::string& folder, const std::vector<std::string>& others = {});

}  // namespace speclab
