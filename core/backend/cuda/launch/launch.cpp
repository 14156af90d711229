#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "core/backend/cuda/launch/launch.h"
#include "core/backend/cuda/program/persistent_kernel.h"
#include "core/backend/cuda/program/program.h"
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
  throw Error(
      {fmt::format("kernel {} with {} x {} x {} blocks of {} threads and {} bytes of shared memory", kernel,
                   shape.grid_x, shape.grid_y, shape.grid_z, shape.threads, shape.shared_bytes),
       reason, "the kernel to start", ""});
}

void fail_arguments(const char* kernel, const char* reason) {
  SPECLAB_CHECK(false, "kernel {}: {}", kernel, reason);
}

namespace {

template <typename... What>
void start(const Stream& stream, const What&... what) {
  if (stream.machine != nullptr) return run_on_machine(what..., stream);
#if defined(SPECLAB_CUDA)
  run_on_device(what..., stream);
#else
  SPECLAB_CHECK(false, "a kernel is started on a GPU by a program that was built without nvcc");
#endif
}

}  // namespace

template <typename Arguments>
void launch(const Arguments& arguments, const Stream& stream) {
  start(stream, arguments);
}

template <typename Kernel>
GraphNode node_of(const Kernel&, const LaunchShape& planned, int most_shared_bytes) {
  const LaunchShape shape = fitted<Kernel>(planned, most_shared_bytes);
  return {Kernel::kName, {shape.grid_x, shape.grid_y, shape.grid_z}, shape.threads, shape.shared_bytes};
}

template <typename Arguments>
GraphNode describe(const Arguments& arguments, int most_shared_bytes) {
  GraphNode node;
  with_kernel(arguments, [&](const auto& kernel, const LaunchShape& shape) {
    node = node_of(kernel, shape, most_shared_bytes);
  });
  return node;
}

template <typename Arguments>
std::optional<Task> task_of(const Arguments& arguments) {
  std::optional<Task> out;
  with_kernel(arguments, [&]<typename Kernel>(const Kernel& kernel, const LaunchShape& shape) {
    if constexpr (kPersistentIndex<Kernel> >= 0) {
      Task task;
      task.threads = shape.threads;
      if constexpr (requires { Kernel::kAnyThreads; })
        task.threads = std::min(task.threads, kPersistentThreads);
      task.shared_bytes = (shape.shared_bytes + 15) / 16 * 16;
      constexpr int kRoom = kPersistentShared - static_cast<int>(sizeof(Task));
      task.together = std::min(kPersistentThreads / task.threads, kRoom / std::max(task.shared_bytes, 1));
      if (task.together < 1) return;
      task.kernel = kPersistentIndex<Kernel>;
      task.grid[0] = shape.grid_x;
      task.grid[1] = shape.grid_y;
      task.grid[2] = shape.grid_z;
      put_kernel(kernel, task);
      if constexpr (std::is_same_v<Arguments, Linear>) {
        task.weights = arguments.weights;
        task.weight_bytes = weight_elements(arguments.out, arguments.in) * sizeof(*arguments.weights);
      }
      out = task;
    }
  });
  return out;
}

void launch(const Task& task, const Stream& stream) { start(stream, task); }

namespace {

template <typename... Kernels>
constexpr std::array<const char*, sizeof...(Kernels)> names_of(const std::tuple<Kernels...>*) {
  return {Kernels::kName...};
}

}  // namespace

const char* kernel_name(int kernel) {
  constexpr auto alone = names_of(static_cast<const PersistentKernels*>(nullptr));
  constexpr auto fused = names_of(static_cast<const FusedKernels*>(nullptr));
  const auto at = static_cast<std::size_t>(kernel);
  if (at < alone.size()) return alone[at];
  return at - alone.size() < fused.size() ? fused[at - alone.size()] : "an unknown kernel";
}

GraphNode describe(const Task& task, int most_shared_bytes) {
  GraphNode node;
  with_task(task, [&](const auto& kernel, const LaunchShape& shape) {
    node = node_of(kernel, shape, most_shared_bytes);
  });
  return node;
}

namespace {

LaunchShape shape_of(int blocks) {
  return {.grid_x = blocks, .threads = kPersistentThreads, .shared_bytes = kPersistentShared};
}

}  // namespace

void launch(const TableLaunch& table, const Stream& stream) { start(stream, table, shape_of(table.blocks)); }

GraphNode describe(const TableLaunch& table, int most_shared_bytes) {
  return node_of(PersistentKernel{table.table}, shape_of(table.blocks), most_shared_bytes);
}

#define SPECLAB_INSTANTIATE(Arguments)                   \
  template void launch(const Arguments&, const Stream&); \
  template GraphNode describe(const Arguments&, int);    \
  template std::optional<Task> task_of(const Arguments&);
SPECLAB_KERNELS(SPECLAB_INSTANTIATE)

}  // namespace speclab::cuda
