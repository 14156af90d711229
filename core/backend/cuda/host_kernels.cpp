#include <string>

#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/machine.h"
#include "core/base/error.h"

namespace speclab::cuda {

bool built_for_gpus() {
#if defined(SPECLAB_CUDA)
  return true;
#else
  return false;
#endif
}

void fail_launch(const char* kernel, const LaunchShape& shape, const char* reason) {
  throw Error({fmt::format("kernel {} with {} x {} x {} blocks of {} threads and {} bytes of shared memory", kernel, shape.grid_x, shape.grid_y, shape.grid_z,
                           shape.threads, shape.shared_bytes),
               reason, "a start", ""});
}

void fail_arguments(const char* kernel, const char* reason) { SPECLAB_CHECK(false, "kernel {}: {}", kernel, reason); }

template <typename Arguments>
void run_on_machine(const Arguments& arguments, simt::Machine& machine) {
  with_kernel(arguments, [&](const auto& kernel, const LaunchShape& shape) { machine.run(kernel, shape); });
}

template <typename Arguments>
void launch(const Arguments& arguments, const Stream& stream) {
  if (stream.machine != nullptr) return run_on_machine(arguments, *stream.machine);
#if defined(SPECLAB_CUDA)
  run_on_device(arguments, stream.device);
#else
  SPECLAB_CHECK(false, "a kernel is started on a GPU by a program that was built without nvcc");
#endif
}

template <typename Arguments>
GraphNode describe(const Arguments& arguments) {
  GraphNode node;
  with_kernel(arguments, [&](const auto& kernel, const LaunchShape& shape) {
    node = {std::remove_cvref_t<decltype(kernel)>::kName, {shape.grid_x, shape.grid_y, shape.grid_z}, shape.threads, shape.shared_bytes};
  });
  return node;
}

#define SPECLAB_INSTANTIATE(Arguments)                        \
  template void launch(const Arguments&, const Stream&); \
  template GraphNode describe(const Arguments&);
SPECLAB_KERNELS(SPECLAB_INSTANTIATE)

}  // namespace speclab::cuda
