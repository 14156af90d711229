#include "core/backend/cuda/runtime/gpu_state.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "core/backend/cuda/runtime/nvml.h"

namespace speclab::cuda {

using nlohmann::json;
using namespace nvml;

namespace {

namespace fs = std::filesystem;

/// Where programs on this machine look for the control daemon of MPS (CUDA Multi-Process Service
/// documentation).
fs::path mps_pipe() {
  const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  return fs::path(folder != nullptr && *folder != '\0' ? folder : "/tmp/nvidia-mps") / "control";
}

/// Whether MPS runs. MPS shares the GPU among processes. With MPS, a graph with a loop around cooperative
/// kernels may not run (gpu_loop.cu).
json mps_state(int processes) {
  if (processes > 0)
    return {{"runs", "yes"}, {"why", fmt::format("NVML lists {} of its processes", processes)}};
  const fs::path pipe = mps_pipe();
  std::error_code error;
  const bool there = fs::exists(pipe, error);
  if (there) return {{"runs", "yes"}, {"why", fmt::format("its control pipe {} exists", pipe.string())}};
  if (error)
    return {{"runs", "unknown"},
            {"why", fmt::format("{} cannot be looked at: {}", pipe.string(), error.message())}};
  if (processes < 0)
    return {{"runs", "unknown"},
            {"why",
             fmt::format("there is no {}, but NVML cannot say whether processes of MPS run", pipe.string())}};
  return {{"runs", "no"},
          {"why", fmt::format("NVML lists no process of it, and there is no {}", pipe.string())}};
}

/// The number of processes that a function of NVML lists; -1: unknown. If the array is too small, NVML says
/// how long it must be. The array then gets 16 entries more, for processes that start before the retry.
int listed_processes(const Library& library, const char* function, Device device) {
  std::vector<Process> processes(64);
  for (int calls = 0; calls < 5; ++calls) {
    auto count = static_cast<unsigned>(processes.size());
    const int result = library.result(function, device, &count, processes.data());
    if (result == kSuccess) return static_cast<int>(count);
    if (result != kInsufficientSize || count <= processes.size()) break;
    processes.resize(std::size_t{count} + 16);
  }
  return -1;
}

json read(const Library& library, Device device) {
  json state = json::object();
  char driver[96] = {};
  if (library.call("nvmlSystemGetDriverVersion", static_cast<char*>(driver),
                   static_cast<unsigned>(sizeof driver)))
    state["driver"] = driver;
  int cuda = 0;
  if (library.call("nvmlSystemGetCudaDriverVersion_v2", &cuda))
    state["cuda_driver"] = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
  unsigned value = 0, other = 0;
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
  if (library.call("nvmlDeviceGetPowerManagementLimitConstraints", device, &other, &value))
    state["most_power_limit_watts"] = value * 1e-3;
  Memory memory = {};
  if (library.call("nvmlDeviceGetMemoryInfo", device, &memory))
    state["memory_bytes"] = {{"total", memory.total}, {"used", memory.used}};
  if (const int processes = compute_processes(library, device); processes >= 0)
    state["compute_processes"] = processes;
  if (const auto reasons = slowed_by(library, device)) state["slowed_by"] = *reasons;
  if (library.call("nvmlDeviceGetPersistenceMode", device, &value)) state["persistence_mode"] = value != 0;
  if (library.call("nvmlDeviceGetEccMode", device, &value, &other)) state["ecc"] = value != 0;
  if (library.call("nvmlDeviceGetComputeMode", device, &value) && value < std::size(kComputeModes))
    state["compute_mode"] = kComputeModes[value];
  state["mps"] = mps_state(mps_processes(library, device));
  return state;
}

}  // namespace

int nvml::compute_processes(const Library& library, Device device) {
  return listed_processes(library, "nvmlDeviceGetComputeRunningProcesses_v3", device);
}

int nvml::mps_processes(const Library& library, Device device) {
  return listed_processes(library, "nvmlDeviceGetMPSComputeRunningProcesses_v3", device);
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

std::string gpu_uuid(const std::string& bus_id, const char* name) {
  const Library library(name);
  if (!library.problem().empty()) return "";
  Device device = library.device(bus_id);
  char uuid[96] = {};  // NVML_DEVICE_UUID_V2_BUFFER_SIZE
  if (device == nullptr || !library.call("nvmlDeviceGetUUID", device, static_cast<char*>(uuid),
                                         static_cast<unsigned>(sizeof uuid)))
    return "";
  return uuid;
}

}  // namespace speclab::cuda
