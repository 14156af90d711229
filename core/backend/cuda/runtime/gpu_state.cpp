#include "core/backend/cuda/runtime/gpu_state.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/backend/cuda/runtime/nvml.h"

namespace speclab::cuda {

using nlohmann::json;
using namespace nvml;

namespace {

json read(const Library& library, Device device) {
  json state = json::object();
  char driver[96] = {};
  if (library.call("nvmlSystemGetDriverVersion", static_cast<char*>(driver),
                   static_cast<unsigned>(sizeof driver)))
    state["driver"] = driver;
  unsigned value = 0;
  for (const auto& [name, function] : {std::pair("clocks_mhz", "nvmlDeviceGetClockInfo"),
                                       std::pair("most_clocks_mhz", "nvmlDeviceGetMaxClockInfo")}) {
    if (library.call(function, device, kSmClock, &value)) state[name]["sm"] = value;
    if (library.call(function, device, kMemoryClock, &value)) state[name]["memory"] = value;
  }
  if (library.call("nvmlDeviceGetTemperature", device, kGpuTemperature, &value))
    state["temperature_celsius"] = value;
  if (library.call("nvmlDeviceGetPowerUsage", device, &value)) state["power_watts"] = value * 1e-3;
  if (library.call("nvmlDeviceGetEnforcedPowerLimit", device, &value))
    state["power_limit_watts"] = value * 1e-3;
  Memory memory = {};
  if (library.call("nvmlDeviceGetMemoryInfo", device, &memory))
    state["memory_bytes"] = {{"total", memory.total}, {"used", memory.used}};
  if (const int processes = compute_processes(library, device); processes >= 0)
    state["compute_processes"] = processes;
  if (const auto reasons = slowed_by(library, device)) state["slowed_by"] = *reasons;
  return state;
}

}  // namespace

int nvml::compute_processes(const Library& library, Device device) {
  Process processes[64] = {};
  unsigned count = std::size(processes);
  return library.call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count,
                      static_cast<Process*>(processes))
             ? static_cast<int>(count)
             : -1;
}

std::optional<std::vector<std::string>> nvml::slowed_by(const Library& library, Device device) {
  unsigned long long reasons = 0;
  if (!library.call("nvmlDeviceGetCurrentClocksEventReasons", device, &reasons) &&
      !library.call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons))
    return std::nullopt;
  std::vector<std::string> names;
  for (const auto& [bit, name] : kReasons) {
    if ((reasons & bit) != 0) names.emplace_back(name);
  }
  return names;
}

json gpu_state(const std::string& bus_id, const char* name) {
  const Library library(name);
  if (!library.problem().empty()) return {{"unavailable", library.problem()}};
  Device device = library.device(bus_id);
  if (device == nullptr) return {{"unavailable", "NVML does not know the GPU at " + bus_id}};
  return read(library, device);
}

}  // namespace speclab::cuda
