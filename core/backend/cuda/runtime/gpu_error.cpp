#include "core/backend/cuda/runtime/gpu_error.h"

#include <fmt/format.h>

#include "core/backend/cuda/runtime/gpu.h"
#include "core/base/error.h"

namespace speclab::cuda {

void fail_no_gpu(const std::string& reason) {
  throw Error({"backend cuda", reason, "an NVIDIA GPU of compute capability 8.0 or newer with its driver",
               "--backend cpu needs none; --backend host-simt runs the same kernels on the CPU, slowly."});
}

void fail_ordinal(int ordinal, int count) {
  throw Error(
      {"--device", std::to_string(ordinal),
       count == 1 ? "0, the only GPU" : fmt::format("0 to {}, the GPUs that the driver shows", count - 1),
       ""});
}

void fail_busy(int ordinal) {
  throw Error(
      {fmt::format("GPU (device {})", ordinal), "a busy or unavailable GPU",
       "a GPU that this process may use",
       "End the process that uses it exclusively, choose another --device, or set the GPU's compute mode to "
       "default (nvidia-smi -c 0)."});
}

void fail_architecture(const std::string& name, int major, int minor) {
  throw Error({fmt::format("GPU {}", name), fmt::format("compute capability {}.{}", major, minor),
               "8.0 or newer, for products of bf16 matrices", "Use --backend cpu."});
}

void fail_memory(std::size_t bytes, std::size_t free, std::size_t total, int ordinal,
                 const std::string& name) {
  const auto mib = [](std::size_t b) { return static_cast<double>(b) / (1 << 20); };
  throw Error({fmt::format("memory of {} (device {}) for {:.1f} MiB more", name, ordinal, mib(bytes)),
               fmt::format("{:.1f} MiB free of {:.1f}", mib(free), mib(total)), "",
               "Use a smaller model or context, another --device, or end other programs that use this GPU."});
}

void fail_gpu(const char* call, std::size_t bytes, int ordinal, const std::string& name, const char* kernel,
              const char* reason) {
  throw Error(
      {fmt::format("{}{} on {} (device {}){}{}", call, bytes > 0 ? fmt::format(" of {} bytes", bytes) : "",
                   name.empty() ? "a GPU" : name, ordinal, *kernel != '\0' ? ", last kernel " : "", kernel),
       reason, "success", ""});
}

void fail_given_up(const std::string& device) {
  throw Error({device, "a device that was given up after a wait without an answer", "a device that answers",
               "End this run of speclab. The message of the earlier wait says what was waited for."});
}

void Device::require_answer() const {
  if (*given_up_) fail_given_up(description());
}

void fail_topology(std::size_t nodes, std::size_t edges, std::size_t kernels) {
  throw Error({"a recorded graph", fmt::format("{} nodes with {} edges", nodes, edges),
               fmt::format("a chain of {} kernels", kernels), ""});
}

#if !defined(SPECLAB_CUDA)

std::string gpu_absent() { return "no CUDA code, because this program was built without nvcc"; }
std::string gpu_bus_id(int) { fail_no_gpu(gpu_absent()); }
std::size_t gpu_free_bytes(int) { fail_no_gpu(gpu_absent()); }
Gpu::Gpu(int ordinal) : ordinal_(ordinal) { fail_no_gpu(gpu_absent()); }
Gpu::~Gpu() = default;
std::shared_ptr<void> Gpu::allocate(std::size_t) { fail_no_gpu(gpu_absent()); }
std::shared_ptr<void> Gpu::allocate_shared(std::size_t) { fail_no_gpu(gpu_absent()); }
bool Gpu::idle() const { fail_no_gpu(gpu_absent()); }
std::uint64_t Gpu::begin_capture(bool) { fail_no_gpu(gpu_absent()); }
std::shared_ptr<void> Gpu::end_capture(std::size_t) { fail_no_gpu(gpu_absent()); }
void Gpu::drop_capture() {}
void Gpu::use() const {}
std::string Gpu::loop_problem(bool) const { return gpu_absent(); }
void Gpu::replay(void*) { fail_no_gpu(gpu_absent()); }
void Gpu::upload(const void*, std::size_t, void*) { fail_no_gpu(gpu_absent()); }
void Gpu::upload_beside(const void*, std::size_t, void*) { fail_no_gpu(gpu_absent()); }
PersistentLimits Gpu::persistent_limits() const { fail_no_gpu(gpu_absent()); }
bool Gpu::overlaps() const { return false; }
int Gpu::most_shared_bytes() const { return 0; }
void Gpu::download(const void*, std::size_t, void*) { fail_no_gpu(gpu_absent()); }
void Gpu::copy(const void*, std::size_t, void*) { fail_no_gpu(gpu_absent()); }
void gpu_profile(int, bool) { fail_no_gpu(gpu_absent()); }
std::unique_ptr<DeviceTimer> Gpu::make_timer() const { fail_no_gpu(gpu_absent()); }
double gpu_copy_bandwidth(int) { fail_no_gpu(gpu_absent()); }

#endif

}  // namespace speclab::cuda
