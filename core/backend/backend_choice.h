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
  int device = 0;                ///< number of the device; the backends cpu and host-simt have only device 0
  std::string numerics = "auto";
  int threads = 0;                   ///< 0: every core that the affinity mask and the cgroup allow
  std::string kernels = "launches";  ///< GPUs only: "launches", "persistent" or "auto" (CudaKernels)
  std::string prefill = "own";       ///< GPUs only: "own" or "cublaslt" (CudaBackendOptions::cublaslt)
};

/// Returns the name of the backend that a choice means: "cpu", "cuda" or "host-simt". `gpu_absent` says why
/// no GPU can be used; it is "" if one can. "auto" means cuda if a GPU can be used, otherwise cpu. If
/// --numerics names a class, "auto" means cpu, because only the CPU offers several classes. Throws Error for
/// an unknown backend.
std::string backend_name(const BackendChoice& choice, const std::string& gpu_absent);
/// True unless the choice means the CPU backend on this machine.
bool is_device(const BackendChoice& choice);
/// True if `name`, as a record gives it, is the name of the CPU backend.
bool is_cpu_backend(std::string_view name);

/// Makes the backend. Throws Error if the backend or the device is missing, or if an option is set that the
/// backend does not have.
std::shared_ptr<Backend> make_backend(const BackendChoice& choice);
/// Checks a choice without making the backend. Throws those Errors of make_backend() that do not depend on
/// the machine. Does not look for a GPU.
void check_backend(const BackendChoice& choice);

}  // namespace speclab
