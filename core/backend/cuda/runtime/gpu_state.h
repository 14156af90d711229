#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace speclab::cuda {

/// DeviceStatus::state() of a GPU, from NVML, the driver's management library. Loads the library, so the
/// program does not need it. `bus_id`: "0000:65:00.0".
nlohmann::json gpu_state(const std::string& bus_id, const char* library = "libnvidia-ml.so.1");

}  // namespace speclab::cuda
