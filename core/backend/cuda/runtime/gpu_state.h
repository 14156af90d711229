#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace speclab::cuda {

/// Returns DeviceStatus::state() of a GPU. It asks NVML, the driver's management library, which is loaded by
/// this call, so the program runs without it. `bus_id`: "0000:65:00.0".
nlohmann::json gpu_state(const std::string& bus_id, const char* library = "libnvidia-ml.so.1");
/// Returns DeviceStatus::uuid() of a GPU. It asks NVML, too, and returns "" if NVML cannot tell.
std::string gpu_uuid(const std::string& bus_id, const char* library = "libnvidia-ml.so.1");

}  // namespace speclab::cuda
