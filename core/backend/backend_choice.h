#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/backend/backend.h"

namespace speclab {

/// The options that choose a backend: --backend, --device, --numerics, --threads, --kernels, --prefill. This
/// is the only place that knows backends by name.
struct BackendChoice {
  std::string backend = "auto";  ///< "cpu", "cuda", "host-simt", or "auto": cuda if a GPU is usable, else cpu
  int device = 0;                ///< which of the backend's devices; the CPU is one
  std::string numerics = "auto";
  int threads = 0;                   ///< 0: every core that the affinity mask and the cgroup allow
  std::string kernels = "launches";  ///< GPUs only: "launches", "persistent" or "auto" (CudaKernels)
  std::string prefill = "own";       ///< GPUs only: "own" or "cublaslt" (CudaBackendOptions::cublaslt)
};

/// The backend that a choice means: "cpu", "cuda" or "host-simt". `gpu_absent`: why no GPU can be used, "" if
/// one can. "auto" is cuda if a GPU can be used, unless --numerics names a class: only the CPU offers
/// several. Throws Error for an unknown backend.
std::string backend_name(const BackendChoice& choice, const std::string& gpu_absent);
/// True unless the choice means the CPU backend on this machine.
bool is_device(const BackendChoice& choice);
/// True for the name of the CPU backend, as records have it.
bool is_cpu_backend(std::string_view name);

/// Throws Error for a backend or a device that is not there, and for options that it does not have.
std::shared_ptr<Backend> make_backend(const BackendChoice& choice);
/// Throws the Errors of make_backend() that do not depend on the machine: it does not look for a GPU.
void check_backend(const BackendChoice& choice);

}  // namespace speclab
