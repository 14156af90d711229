#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/backend/backend.h"
#include "core/backend/cuda_kernels.h"

/// Chooses and makes a backend from the options of the command line, and says what "auto" stands for.
namespace speclab {

enum class BackendKind : std::uint8_t { kAuto, kCpu, kCuda, kSimulated };
/// What computes long prompts on a GPU: the engine's own kernels, or cuBLASLt (CudaBackendOptions::cublaslt).
enum class PrefillKernels : std::uint8_t { kOwn, kCublasLt };
/// When a device is compared with the CPU before it is used (experiments/run/device/open_backend.h). kAuto:
/// if --backend auto chose it; kOn: always; kOff: never.
enum class SelfTestWhen : std::uint8_t { kAuto, kOn, kOff };

/// The options that choose a backend: --backend, --device, --numerics, --threads, --kernels, --prefill,
/// --self-test. Code outside core/backend does not compare the names of backends.
struct BackendChoice {
  BackendKind backend = BackendKind::kAuto;  ///< what kAuto means: see resolve_backend()
  int device = 0;                 ///< number of the device; the backends cpu and host-simt have only device 0
  std::string numerics = "auto";  ///< a numerics class, or "auto": the backend's default
  int threads = 0;                ///< 0: every core that the affinity mask and the cgroup allow
  CudaKernels kernels = CudaKernels::kLaunches;   ///< GPUs only, also host-simt
  PrefillKernels prefill = PrefillKernels::kOwn;  ///< GPUs only, also host-simt
  SelfTestWhen self_test = SelfTestWhen::kAuto;   ///< make_backend() does not read it
};

/// The names of the fixed choices on the command line and in records. Parsing throws Error for an unknown
/// name.
BackendKind parse_backend_kind(std::string_view name);
CudaKernels parse_cuda_kernels(std::string_view name);
PrefillKernels parse_prefill_kernels(std::string_view name);
SelfTestWhen parse_self_test(std::string_view name);
std::string_view name_of(BackendKind backend);
std::string_view name_of(CudaKernels kernels);
std::string_view name_of(PrefillKernels prefill);
std::string_view name_of(SelfTestWhen self_test);

/// Returns the backend that a choice stands for, never kAuto. `gpu_absent` says why no GPU can be used; it is
/// "" if one can. kAuto means kCuda if a GPU can be used and --numerics is "auto", otherwise kCpu. If
/// --numerics names a class, kAuto means kCpu also with a GPU, because only the CPU offers several classes.
BackendKind resolve_backend(const BackendChoice& choice, const std::string& gpu_absent);
/// True unless the choice, resolved on this machine, is the CPU backend.
bool is_device(const BackendChoice& choice);
/// True if `name`, as a record gives it, is the name of the CPU backend.
bool is_cpu_backend(std::string_view name);

/// Makes the backend. Throws Error if the backend or the device is missing, or if an option is set that the
/// backend does not have.
std::shared_ptr<Backend> make_backend(const BackendChoice& choice);
/// Checks a choice. For the CPU and for the simulated GPU it makes the backend, drops it, and throws the same
/// Errors as make_backend(). For the backend cuda it checks nothing, because that would open the GPU.
void check_backend(const BackendChoice& choice);

}  // namespace speclab
