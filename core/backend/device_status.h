#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace speclab {

/// What a device did, and who else used it, while something was measured.
struct DeviceUse {
  double seconds = 0;
  double joules = -1;  ///< energy of the whole device; -1: unknown
  std::string energy;  ///< where `joules` comes from: "counter" (the device's energy counter), "power"
                       ///< (samples of its power, integrated), "" (unknown)
  std::optional<int> other_processes;  ///< number of other processes on the device at the start or at the
                                       ///< end, whichever is larger; no value: the driver cannot count them
  std::vector<std::string> slowed_by;  ///< why the device's clocks were below their maximum at the end
};

/// Watches a device from begin() to end(). After end(), begin() may be called again. Either call takes about
/// a millisecond.
class DeviceWatch {
 public:
  virtual ~DeviceWatch() = default;
  virtual void begin() = 0;
  virtual DeviceUse end() = 0;
};

/// Reads the state of a device. A measurement records this state besides its own times. A backend offers a
/// DeviceStatus with Backend::device_status().
class DeviceStatus {
 public:
  virtual ~DeviceStatus() = default;

  /// The state now: {"driver", "cuda_driver", "clocks_mhz": {"sm", "memory"}, "most_clocks_mhz": {...},
  /// "temperature_celsius", "power_watts", "power_limit_watts", "most_power_limit_watts",
  /// "memory_bytes": {"total", "used"}, "compute_processes", "slowed_by": [..], "persistence_mode": bool,
  /// "ecc": bool, "compute_mode", "mps": {"runs": "yes" | "no" | "unknown", "why"}}. Unknown fields are left
  /// out, except "mps". If nothing is known, the state is {"unavailable": reason}.
  virtual nlohmann::json state() const = 0;
  /// The number that the manufacturer gave to this one device, "GPU-<digits>". Records contain state(), so
  /// state() leaves this number out. "" if it is unknown.
  virtual std::string uuid() const { return ""; }
  /// Null when nothing is known about the device.
  virtual std::unique_ptr<DeviceWatch> watch() const = 0;
  /// Bytes read plus bytes written per second while the device copies a gigabyte of its memory, the best of
  /// several copies. Throws Error if less than two gigabytes of its memory are free.
  virtual double measure_copy_bandwidth() const = 0;
  /// Begins (true) or ends (false) a range. A profiler that was told to wait for a range records only this
  /// range: ncu with --profile-from-start off, nsys with --capture-range=cudaProfilerApi. Waits for the
  /// device first. Without a profiler the call does nothing else.
  virtual void profile(bool begin) const = 0;
};

}  // namespace speclab
