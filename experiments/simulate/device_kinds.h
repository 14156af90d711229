#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "experiments/simulate/device_file.h"

/// The kinds of devices that a device file can describe, and how each is read.
namespace speclab {

inline constexpr double kNsPerUs = 1e3;  ///< device files have microseconds, devices have nanoseconds

/// Makes a device from the content of a device file, which configs/devices/README.md describes. `path` names
/// the file in messages. Throws Error with the file and the JSON pointer of what is wrong: an unknown kind, a
/// part that the kind does not have, a missing part, a value out of range, a table without times of one row.
SimulatedDevice parse_device(const nlohmann::json& file, const std::string& path);

}  // namespace speclab
