#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/backend/device_status.h"

namespace speclab {

/// What the result of one self-test holds for: a program, a device with its driver, and the way in which the
/// program uses it.
struct TestedDevice {
  std::string binary_sha256;
  std::string device;  ///< the name of its kind: "NVIDIA H100"
  std::string unit;    ///< which device of this kind, see unit_of()
  std::string driver;  ///< the version of the driver; "": unknown
  std::string numerics, kernels;
};

/// Tells apart several devices of one kind: the UUID of the device. If the UUID is unknown, "number N", where
/// N is `number`, the driver's number of the device.
std::string unit_of(const DeviceStatus* status, int number);
/// The version of the driver; "" if it is unknown.
std::string driver_of(const DeviceStatus* status);

/// The path of the file that records a passed self-test. Each TestedDevice has a file of its own, in
/// $XDG_CACHE_HOME/speclab or $HOME/.cache/speclab. No value if neither variable holds an absolute path.
/// The file need not exist.
std::optional<std::filesystem::path> passed_file(const TestedDevice& tested);

/// Whether passed_file() records that the self-test passed. False if the file is missing or damaged.
bool passed_before(const TestedDevice& tested);

/// Writes the file and returns its path. Throws Error if passed_file() has no value or writing fails.
std::filesystem::path note_passed(const TestedDevice& tested);

}  // namespace speclab
