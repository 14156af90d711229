// Stands in for the CUDA driver, libcuda.so.1. It sees no GPU. FAKE_CUDA_VERSION is the CUDA version that it
// knows, such as 11080 for 11.8; without it, 13.0.

#include <cstdlib>
#include <cstring>
#include <string_view>

extern "C" {

constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

int cuInit(unsigned) { return kNoDevice; }
int cuDriverGetVersion(int* version) {
  const char* known = std::getenv("FAKE_CUDA_VERSION");
  *version = known != nullptr ? std::atoi(known) : 13000;
  return 0;
}
int fake_call_without_a_device() { return kNoDevice; }
int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int* found) {
  const std::string_view wanted = name;
  if (found != nullptr) *found = 0;
  if (wanted == "cuInit") *function = reinterpret_cast<void*>(cuInit);
  else if (wanted == "cuDriverGetVersion") *function = reinterpret_cast<void*>(cuDriverGetVersion);
  else if (wanted == "cuGetProcAddress") *function = reinterpret_cast<void*>(cuGetProcAddress_v2);
  else *function = reinterpret_cast<void*>(fake_call_without_a_device);
  return 0;
}
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
}
