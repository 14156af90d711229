#include "core/backend/backend_choice.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/error.h"
#include "core/base/options.h"

namespace speclab {
namespace {

template <class Enum>
using Name = std::pair<Enum, std::string_view>;
constexpr Name<BackendKind> kBackends[] = {{BackendKind::kAuto, "auto"},
                                           {BackendKind::kCpu, "cpu"},
                                           {BackendKind::kCuda, "cuda"},
                                           {BackendKind::kSimulated, "host-simt"}};
constexpr Name<CudaKernels> kKernels[] = {{CudaKernels::kLaunches, "launches"},
                                          {CudaKernels::kSerial, "serial"},
                                          {CudaKernels::kGraphs, "graphs"},
                                          {CudaKernels::kPersistent, "persistent"},
                                          {CudaKernels::kAuto, "auto"}};
constexpr Name<PrefillKernels> kPrefills[] = {{PrefillKernels::kOwn, "own"},
                                              {PrefillKernels::kCublasLt, "cublaslt"}};
constexpr Name<SelfTestWhen> kSelfTests[] = {
    {SelfTestWhen::kAuto, "auto"}, {SelfTestWhen::kOn, "on"}, {SelfTestWhen::kOff, "off"}};

template <class Enum, std::size_t n>
std::string_view choice_name(Enum value, const Name<Enum> (&names)[n]) {
  for (const auto& [each, name] : names) {
    if (each == value) return name;
  }
  SPECLAB_CHECK(false, "an enumerator without a name: {}", static_cast<int>(value));
}

/// Returns the backend that the choice means on this machine.
BackendKind backend_here(const BackendChoice& choice) {
  return resolve_backend(choice, choice.backend == BackendKind::kAuto ? gpu_absent() : "");
}

/// Throws Error unless the choice names device 0. For backends that have a single device.
void require_first_device(const BackendChoice& choice, std::string_view backend) {
  if (choice.device == 0) return;
  throw Error({.what = "--device",
               .got = std::to_string(choice.device),
               .expected = fmt::format("0: the {} backend has one device", backend),
               .advice = "On the CPU backend, --threads limits the cores."});
}

std::shared_ptr<Backend> make_gpu(const BackendChoice& choice, bool simulated) {
  if (simulated) require_first_device(choice, name_of(BackendKind::kSimulated));
  auto backend = make_cuda_backend({.device = choice.device,
                                    .threads = choice.threads,
                                    .simulated = simulated,
                                    .cublaslt = choice.prefill == PrefillKernels::kCublasLt},
                                   choice.kernels);
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

BackendKind parse_backend_kind(std::string_view name) { return parse_choice("--backend", name, kBackends); }
CudaKernels parse_cuda_kernels(std::string_view name) { return parse_choice("--kernels", name, kKernels); }
PrefillKernels parse_prefill_kernels(std::string_view name) {
  return parse_choice("--prefill", name, kPrefills);
}
SelfTestWhen parse_self_test(std::string_view name) { return parse_choice("--self-test", name, kSelfTests); }
std::string_view name_of(BackendKind backend) { return choice_name(backend, kBackends); }
std::string_view name_of(CudaKernels kernels) { return choice_name(kernels, kKernels); }
std::string_view name_of(PrefillKernels prefill) { return choice_name(prefill, kPrefills); }
std::string_view name_of(SelfTestWhen self_test) { return choice_name(self_test, kSelfTests); }

BackendKind resolve_backend(const BackendChoice& choice, const std::string& gpu_absent) {
  if (choice.backend != BackendKind::kAuto) return choice.backend;
  return choice.numerics == "auto" && gpu_absent.empty() ? BackendKind::kCuda : BackendKind::kCpu;
}

bool is_device(const BackendChoice& choice) { return backend_here(choice) != BackendKind::kCpu; }
bool is_cpu_backend(std::string_view name) { return name == name_of(BackendKind::kCpu); }

void check_backend(const BackendChoice& choice) {
  if (backend_here(choice) != BackendKind::kCuda) make_backend(choice);
}

std::shared_ptr<Backend> make_backend(const BackendChoice& choice) {
  const BackendKind kind = backend_here(choice);
  if (kind != BackendKind::kCpu) return make_gpu(choice, kind == BackendKind::kSimulated);
  require_first_device(choice, "CPU");
  if (choice.kernels != CudaKernels::kLaunches && choice.kernels != CudaKernels::kAuto) {
    throw Error(
        {.what = "--kernels",
         .got = std::string(name_of(choice.kernels)),
         .expected = "launches or auto with --backend cpu",
         .advice = fmt::format("--kernels {} needs --backend cuda or host-simt.", name_of(choice.kernels))});
  }
  if (choice.prefill == PrefillKernels::kCublasLt) {
    throw Error({.what = "--prefill",
                 .got = std::string(name_of(choice.prefill)),
                 .expected = "own with --backend cpu",
                 .advice = "--prefill cublaslt needs --backend cuda or host-simt; use --prefill own."});
  }
  return make_cpu_backend({.threads = choice.threads, .numerics = choice.numerics});
}

}  // namespace speclab
