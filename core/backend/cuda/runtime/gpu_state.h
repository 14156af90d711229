#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace speclab::cuda {

/// What the driver's management library (NVML) says of a GPU now: {"driver", "clocks_mhz": {"sm", "memory"},
/// "most_clocks_mhz": {...}, "temperature_celsius", "power_watts", "power_limit_watts", "memory_bytes":
/// {"total", "used"}, "compute_processes", "slowed_by": [..]}. What it does not say is left out;
/// {"unavailable": reason} when it says nothing. The library is loaded when this is called, so that the
/// program needs none. `bus_id`: "0000:65:00.0".
nlohmann::json gpu_state(const std::string& bus_id, const char* library = "libnvidia-ml.so.1");

}  // namespace speclab::cuda
