// Stands in for NVML. Its GPU, at 0000:65:00.0, is slowed down by its power cap and reports no temperature.
// Its energy counter grows by 1.5 J with every reading, and is missing if FAKE_NVML_NO_COUNTER is set.
// FAKE_NVML_MPS is the number of its MPS processes; without it NVML does not list them. FAKE_NVML_PROCESSES
// is the number of processes that compute, by default 2.

#include <cstdlib>
#include <cstring>

struct Process {  // nvmlProcessInfo_t
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

/// Fills the array, or says how long it must be.
static int list(unsigned processes, unsigned* count, Process* out) {
  const unsigned room = *count;
  *count = processes;
  if (processes > room) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  for (unsigned i = 0; i < processes; ++i) out[i] = {i + 1, 0, 0, 0};
  return 0;
}

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* version, unsigned size) {
  std::strncpy(version, "600.1", size);
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  static int one;
  *device = &one;
  return std::strcmp(id, "0000:65:00.0") == 0 ? 0 : 6;  // NVML_ERROR_NOT_FOUND
}
int nvmlDeviceGetUUID(void*, char* uuid, unsigned size) {
  std::strncpy(uuid, "GPU-1234", size);
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1500 : 2600;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1980 : 2619;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned*) { return 3; }  // NVML_ERROR_NOT_SUPPORTED
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 650500;
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
  static unsigned long long used = 7000;
  *millijoules = used += 1500;
  return std::getenv("FAKE_NVML_NO_COUNTER") == nullptr ? 0 : 3;  // NVML_ERROR_NOT_SUPPORTED
}
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  *milliwatts = 700000;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = 1000, memory[1] = 600, memory[2] = 400;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, Process* out) {
  if (std::getenv("FAKE_NVML_NO_PROCESSES") != nullptr) return 3;  // NVML_ERROR_NOT_SUPPORTED
  const char* processes = std::getenv("FAKE_NVML_PROCESSES");
  return list(processes == nullptr ? 2 : static_cast<unsigned>(std::atoi(processes)), count, out);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void*, unsigned* count, Process* out) {
  const char* processes = std::getenv("FAKE_NVML_MPS");
  if (processes == nullptr) return 13;  // NVML_ERROR_FUNCTION_NOT_FOUND
  return list(static_cast<unsigned>(std::atoi(processes)), count, out);
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 12040;
  return 0;
}
int nvmlDeviceGetPersistenceMode(void*, unsigned* mode) {
  *mode = 1;
  return 0;
}
int nvmlDeviceGetEccMode(void*, unsigned* current, unsigned* pending) {
  *current = 0, *pending = 1;
  return 0;
}
int nvmlDeviceGetComputeMode(void*, unsigned* mode) {
  *mode = 3;
  return 0;
}
int nvmlDeviceGetPowerManagementLimitConstraints(void*, unsigned* least, unsigned* most) {
  *least = 200000, *most = 750000;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = 0x1 | 0x4;  // idle, power cap
  return 0;
}
}
