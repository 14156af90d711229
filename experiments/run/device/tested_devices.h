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

/// Which of several devices of one kind it is: its UUID. If that is unknown, "number N" with the driver's
/// number of the device.
std::string unit_of(const DeviceStatus* status, int number);
/// The version of the driver; "" if it is unknown.
std::string driver_of(const DeviceStatus* status);

/// The file in the user's cache directory that notes that the self-test passed: a file of its own for each
/// TestedDevice, in $XDG_CACHE_HOME/speclab or $HOME/.cache/speclab. No value if neither variable names a
/// directory.
std::optional<std::filesystem::path> passed_file(const TestedDevice& tested);

/// Whether the file notes that the self-test passed. False if there is no such file, or if it is damaged.
bool passed_before(const TestedDevice& tested);

/// Writes the file and returns its path. Throws Error if there is no cache directory or it cannot be written.
std::filesystem::path note_passed(const TestedDevice& tested);

}  // namespace speclab
