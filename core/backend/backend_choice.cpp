#include "core/backend/backend_choice.h"

#include <fmt/format.h>

#include "core/backend/cuda_kernels.h"
#include "core/base/error.h"

namespace speclab {
namespace {

constexpr std::string_view kCpu = "cpu", kCuda = "cuda", kSimulated = "host-simt";

/// Returns the name of the backend that the choice means on this machine.
std::string name_here(const BackendChoice& choice) {
  return backend_name(choice, choice.backend == "auto" ? gpu_absent() : "");
}

/// Throws Error unless the choice names device 0. For backends that have a single device.
void require_first_device(const BackendChoice& choice, std::string_view backend) {
  if (choice.device == 0) return;
  throw Error({.what = "--device",
               .got = std::to_string(choice.device),
               .expected = fmt::format("0: the {} backend has one device, all cores", backend),
               .advice = "--threads limits the cores."});
}

/// Returns true for "cublaslt" and false for "own". Throws Error for any other name.
bool parse_prefill(const std::string& name) {
  if (name != "own" && name != "cublaslt")
    throw Error({.what = "--prefill", .got = name, .expected = "own or cublaslt", .advice = ""});
  return name == "cublaslt";
}

std::shared_ptr<Backend> make_gpu(const BackendChoice& choice, bool simulated, bool cublaslt,
                                  CudaKernels kernels) {
  if (simulated) require_first_device(choice, kSimulated);
  auto backend = make_cuda_backend(
      {.device = choice.device, .threads = choice.threads, .simulated = simulated, .cublaslt = cublaslt},
      kernels);
  if (choice.numerics != "auto" && choice.numerics != backend->numerics_class()) {
    throw Error({.what = "--numerics",
                 .got = choice.numerics,
                 .expected = fmt::format("auto or {}, the numerics class of {}", backend->numerics_class(),
                                         backend->device_name()),
                 .advice = ""});
  }
  return backend;
}

}  // namespace

std::string backend_name(const BackendChoice& choice, const std::string& gpu_absent) {
  if (choice.backend == "auto")
    return std::string(choice.numerics == "auto" && gpu_absent.empty() ? kCuda : kCpu);
  if (choice.backend != kCpu && choice.backend != kCuda && choice.backend != kSimulated) {
    throw Error({.what = "--backend",
                 .got = choice.backend,
                 .expected = "auto, cpu, cuda or host-simt",
                 .advice = ""});
  }
  return choice.backend;
}

bool is_device(const BackendChoice& choice) { return name_here(choice) != kCpu; }
bool is_cpu_backend(std::string_view name) { return name == kCpu; }

void check_backend(const BackendChoice& choice) {
  if (name_here(choice) != kCuda) {
    make_backend(choice);
    return;
  }
  parse_cuda_kernels(choice.kernels);
  parse_prefill(choice.prefill);
}

std::shared_ptr<Backend> make_backend(const BackendChoice& choice) {
  const std::string name = name_here(choice);
  const CudaKernels kernels = parse_cuda_kernels(choice.kernels);
  const bool cublaslt = parse_prefill(choice.prefill);
  if (name != kCpu) return make_gpu(choice, name == kSimulated, cublaslt, kernels);
  require_first_device(choice, "CPU");
  if (kernels == CudaKernels::kPersistent) {
    throw Error({.what = "--kernels",
                 .got = choice.kernels,
                 .expected = "launches or auto with --backend cpu",
                 .advice = "--kernels persistent needs --backend cuda."});
  }
  if (cublaslt) {
    throw Error({.what = "--prefill",
                 .got = choice.prefill,
                 .expected = "own with --backend cpu",
                 .advice = "--prefill cublaslt needs --backend cuda; use --prefill own."});
  }
  return make_cpu_backend({.threads = choice.threads, .numerics = choice.numerics});
}

}  // namespace speclab
