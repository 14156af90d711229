#pragma once

#include <dlfcn.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#if defined(SPECLAB_NVML_HEADER)  // set by CMake where NVIDIA's header is installed
#include <nvml.h>

#include <cstddef>
#include <type_traits>
#endif

// NVML, the driver's management library (NVML API reference). It is loaded on first use, so neither the
// library nor its header is needed to build or to start the program. If the header is installed, the compiler
// checks these declarations against it.

namespace speclab::cuda::nvml {

using Device = void*;
struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
inline constexpr int kSuccess = 0;
inline constexpr int kInsufficientSize = 7;  ///< an array is too small; its length is set to what is needed
inline constexpr int kFunctionNotFound = 13;
inline constexpr int kSmClock = 1, kMemoryClock = 2;
inline constexpr int kGpuTemperature = 0;
inline constexpr const char* kComputeModes[] = {"default", "exclusive thread", "prohibited",
                                                "exclusive process"};
/// Reasons why clocks are below their maximum. NVML has other reasons, too, but those do not slow down a busy
/// GPU.
inline constexpr std::pair<unsigned long long, const char*> kReasons[] = {
    {0x2, "applications' clocks"}, {0x4, "power cap"},         {0x8, "hardware slowdown"},
    {0x10, "sync boost"},          {0x20, "thermal slowdown"}, {0x40, "hardware thermal slowdown"},
    {0x80, "power brake"},         {0x100, "display clocks"}};

/// Loads NVML and calls its functions by name. A call of a function that the library lacks fails, like a call
/// that the GPU does not support.
class Library {
 public:
  /// Loads and starts the library; see problem().
  explicit Library(const char* name)
      : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL), [](void* h) {
          if (h != nullptr) dlclose(h);
        }) {
    if (handle_ == nullptr) problem_ = std::string(name) + " was not found";
    else if (!call("nvmlInit_v2")) problem_ = "NVML did not start";
  }
  ~Library() {
    if (problem_.empty()) call("nvmlShutdown");
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const std::string& problem() const { return problem_; }  ///< "" if it works
  /// Calls a function and returns its result.
  template <typename... Arguments>
  int result(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(handle_.get(), name));
    return function != nullptr ? function(arguments...) : kFunctionNotFound;
  }
  /// Whether a call succeeds.
  template <typename... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    return result(name, arguments...) == kSuccess;
  }
  /// `bus_id`: "0000:65:00.0". Null if there is no such GPU.
  Device device(const std::string& bus_id) const {
    Device device = nullptr;
    return call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str(), &device) ? device : nullptr;
  }

 private:
  std::unique_ptr<void, void (*)(void*)> handle_;
  std::string problem_;
};

/// Number of processes that compute on the GPU now, including this one; -1: unknown.
int compute_processes(const Library& library, Device device);
/// Number of processes of MPS (which shares a GPU among processes) that compute on the GPU now; -1: unknown.
int mps_processes(const Library& library, Device device);
/// The kReasons that hold now; nullopt: unknown.
std::optional<std::vector<std::string>> slowed_by(const Library& library, Device device);

#if defined(SPECLAB_NVML_HEADER)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // old drivers have only the deprecated functions
namespace check {
template <auto ours, auto theirs>
inline constexpr bool same = static_cast<unsigned long long>(ours) == static_cast<unsigned long long>(theirs);
template <auto function, typename... Arguments>
inline constexpr bool takes = std::is_invocable_r_v<nvmlReturn_t, decltype(function), Arguments...>;

static_assert(sizeof(nvmlDevice_t) == sizeof(Device) && sizeof(nvmlReturn_t) == sizeof(int) &&
              sizeof(nvmlClockType_t) == sizeof(int) && sizeof(nvmlTemperatureSensors_t) == sizeof(int));
static_assert(sizeof(nvmlMemory_t) == sizeof(Memory) &&
              offsetof(nvmlMemory_t, total) == offsetof(Memory, total) &&
              offsetof(nvmlMemory_t, free) == offsetof(Memory, free) &&
              offsetof(nvmlMemory_t, used) == offsetof(Memory, used));
static_assert(sizeof(nvmlProcessInfo_t) == sizeof(Process) &&
              offsetof(nvmlProcessInfo_t, pid) == offsetof(Process, pid) &&
              offsetof(nvmlProcessInfo_t, usedGpuMemory) == offsetof(Process, memory) &&
              offsetof(nvmlProcessInfo_t, gpuInstanceId) == offsetof(Process, gpu_instance) &&
              offsetof(nvmlProcessInfo_t, computeInstanceId) == offsetof(Process, compute_instance));
static_assert(same<kSuccess, NVML_SUCCESS> && same<kInsufficientSize, NVML_ERROR_INSUFFICIENT_SIZE> &&
              same<kFunctionNotFound, NVML_ERROR_FUNCTION_NOT_FOUND> && same<kSmClock, NVML_CLOCK_SM> &&
              same<kMemoryClock, NVML_CLOCK_MEM> && same<kGpuTemperature, NVML_TEMPERATURE_GPU>);
static_assert(same<kReasons[0].first, nvmlClocksThrottleReasonApplicationsClocksSetting> &&
              same<kReasons[1].first, nvmlClocksThrottleReasonSwPowerCap> &&
              same<kReasons[2].first, nvmlClocksThrottleReasonHwSlowdown> &&
              same<kReasons[3].first, nvmlClocksThrottleReasonSyncBoost> &&
              same<kReasons[4].first, nvmlClocksThrottleReasonSwThermalSlowdown> &&
              same<kReasons[5].first, nvmlClocksThrottleReasonHwThermalSlowdown> &&
              same<kReasons[6].first, nvmlClocksThrottleReasonHwPowerBrakeSlowdown> &&
              same<kReasons[7].first, nvmlClocksThrottleReasonDisplayClockSetting>);
// Checks every function that is called by name, with the types of the arguments that the call passes.
static_assert(takes<nvmlInit_v2> && takes<nvmlShutdown> &&
              takes<nvmlSystemGetDriverVersion, char*, unsigned> &&
              takes<nvmlDeviceGetHandleByPciBusId_v2, const char*, nvmlDevice_t*> &&
              takes<nvmlDeviceGetUUID, nvmlDevice_t, char*, unsigned> &&
              takes<nvmlDeviceGetClockInfo, nvmlDevice_t, nvmlClockType_t, unsigned*> &&
              takes<nvmlDeviceGetMaxClockInfo, nvmlDevice_t, nvmlClockType_t, unsigned*> &&
              takes<nvmlDeviceGetTemperature, nvmlDevice_t, nvmlTemperatureSensors_t, unsigned*> &&
              takes<nvmlDeviceGetPowerUsage, nvmlDevice_t, unsigned*> &&
              takes<nvmlDeviceGetEnforcedPowerLimit, nvmlDevice_t, unsigned*> &&
              takes<nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t*> &&
              takes<nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t, unsigned*, nvmlProcessInfo_t*> &&
              takes<nvmlDeviceGetCurrentClocksEventReasons, nvmlDevice_t, unsigned long long*> &&
              takes<nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDevice_t, unsigned long long*> &&
              takes<nvmlDeviceGetTotalEnergyConsumption, nvmlDevice_t, unsigned long long*>);
static_assert(takes<nvmlSystemGetCudaDriverVersion_v2, int*> &&
              takes<nvmlDeviceGetPersistenceMode, nvmlDevice_t, nvmlEnableState_t*> &&
              takes<nvmlDeviceGetEccMode, nvmlDevice_t, nvmlEnableState_t*, nvmlEnableState_t*> &&
              takes<nvmlDeviceGetComputeMode, nvmlDevice_t, nvmlComputeMode_t*> &&
              takes<nvmlDeviceGetPowerManagementLimitConstraints, nvmlDevice_t, unsigned*, unsigned*> &&
              takes<nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlDevice_t, unsigned*, nvmlProcessInfo_t*>);
static_assert(sizeof(nvmlEnableState_t) == sizeof(unsigned) &&
              sizeof(nvmlComputeMode_t) == sizeof(unsigned) && NVML_COMPUTEMODE_DEFAULT == 0 &&
              NVML_COMPUTEMODE_PROHIBITED == 2 && NVML_COMPUTEMODE_EXCLUSIVE_PROCESS == 3);
}  // namespace check
#pragma GCC diagnostic pop
#endif

}  // namespace speclab::cuda::nvml
