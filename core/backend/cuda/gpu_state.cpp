#include "core/backend/cuda/gpu_state.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

namespace speclab::cuda {
namespace {

using nlohmann::json;

// Of nvml.h (NVML API reference), which comes with the driver's development files and is not needed to build.
using Device = void*;
struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
constexpr int kSuccess = 0;
constexpr int kSmClock = 1, kMemoryClock = 2;
constexpr int kGpuTemperature = 0;
constexpr std::pair<unsigned long long, const char*> kReasons[] = {
    {0x2, "applications' clocks"}, {0x4, "power cap"},          {0x8, "hardware slowdown"},   {0x10, "sync boost"},
    {0x20, "thermal slowdown"},    {0x40, "hardware thermal slowdown"}, {0x80, "power brake"}, {0x100, "display clocks"}};

// Functions by name; one that is missing fails like one that is not supported.
class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL), [](void* h) { if (h != nullptr) dlclose(h); }) {}
  bool loaded() const { return handle_ != nullptr; }
  template <typename... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(handle_.get(), name));
    return function != nullptr && function(arguments...) == kSuccess;
  }

 private:
  std::unique_ptr<void, void (*)(void*)> handle_;
};

json read(const Library& nvml, const std::string& bus_id) {
  Device device = nullptr;
  if (!nvml.call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str(), &device)) return {{"unavailable", "NVML does not know the GPU at " + bus_id}};
  json state = json::object();
  char driver[96] = {};
  if (nvml.call("nvmlSystemGetDriverVersion", static_cast<char*>(driver), static_cast<unsigned>(sizeof driver))) state["driver"] = driver;
  unsigned value = 0;
  for (const auto& [name, function] : {std::pair("clocks_mhz", "nvmlDeviceGetClockInfo"), std::pair("most_clocks_mhz", "nvmlDeviceGetMaxClockInfo")}) {
    if (nvml.call(function, device, kSmClock, &value)) state[name]["sm"] = value;
    if (nvml.call(function, device, kMemoryClock, &value)) state[name]["memory"] = value;
  }
  if (nvml.call("nvmlDeviceGetTemperature", device, kGpuTemperature, &value)) state["temperature_celsius"] = value;
  if (nvml.call("nvmlDeviceGetPowerUsage", device, &value)) state["power_watts"] = value * 1e-3;
  if (nvml.call("nvmlDeviceGetEnforcedPowerLimit", device, &value)) state["power_limit_watts"] = value * 1e-3;
  Memory memory = {};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory)) state["memory_bytes"] = {{"total", memory.total}, {"used", memory.used}};
  Process processes[64] = {};
  unsigned count = std::size(processes);
  if (nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, static_cast<Process*>(processes))) state["compute_processes"] = count;
  unsigned long long reasons = 0;
  if (nvml.call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons)) {
    state["slowed_by"] = json::array();
    for (const auto& [bit, name] : kReasons) {
      if ((reasons & bit) != 0) state["slowed_by"].push_back(name);
    }
  }
  return state;
}

}  // namespace

json gpu_state(const std::string& bus_id, const char* library) {
  const Library nvml(library);
  if (!nvml.loaded()) return {{"unavailable", fmt::format("{} was not found", library)}};
  if (!nvml.call("nvmlInit_v2")) return {{"unavailable", "NVML did not start"}};
  json state = read(nvml, bus_id);
  nvml.call("nvmlShutdown");
  return state;
}

}  // namespace speclab::cuda
