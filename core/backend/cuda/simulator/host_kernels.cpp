#include <algorithm>
#include <cstring>
#include <string>

#include "core/backend/cuda/runtime/launch.h"
#include "core/backend/cuda/simulator/machine.h"
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
       reason, "a start", ""});
}

void fail_arguments(const char* kernel, const char* reason) {
  SPECLAB_CHECK(false, "kernel {}: {}", kernel, reason);
}

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

template <typename Kernel>
GraphNode node_of(const Kernel&, const LaunchShape& shape) {
  return {Kernel::kName, {shape.grid_x, shape.grid_y, shape.grid_z}, shape.threads, shape.shared_bytes};
}

template <typename Arguments>
GraphNode describe(const Arguments& arguments) {
  GraphNode node;
  with_kernel(arguments,
              [&](const auto& kernel, const LaunchShape& shape) { node = node_of(kernel, shape); });
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
      static_assert(sizeof kernel <= kTaskBytes && std::is_trivially_copyable_v<Kernel>);
      std::memcpy(task.arguments, &kernel, sizeof kernel);
      if constexpr (std::is_same_v<Arguments, Linear>) {
        task.weights = arguments.weights;
        task.weight_bytes = weight_elements(arguments.out, arguments.in) * sizeof(*arguments.weights);
      }
      out = task;
    }
  });
  return out;
}

void launch(const Task& task, const Stream& stream) {
  if (stream.machine != nullptr)
    return with_task(
        task, [&](const auto& kernel, const LaunchShape& shape) { stream.machine->run(kernel, shape); });
#if defined(SPECLAB_CUDA)
  run_task_on_device(task, stream.device);
#else
  SPECLAB_CHECK(false, "a kernel is started on a GPU by a program that was built without nvcc");
#endif
}

GraphNode describe(const Task& task) {
  GraphNode node;
  with_task(task, [&](const auto& kernel, const LaunchShape& shape) { node = node_of(kernel, shape); });
  return node;
}

namespace {

/// The kernel of a task that is one of that type.
template <typename Kernel>
Kernel kernel_of(const Task& task) {
  Kernel kernel{};
  std::memcpy(static_cast<void*>(&kernel), task.arguments, sizeof kernel);
  return kernel;
}
/// `linear` with another kernel, whose blocks are laid out in the same way.
template <typename Kernel>
Task with_kernel_in(const Task& linear, const Kernel& kernel) {
  static_assert(sizeof kernel <= kTaskBytes && std::is_trivially_copyable_v<Kernel>);
  Task out = linear;
  out.kernel = kFusedIndex<Kernel>;
  std::memset(out.arguments, 0, sizeof out.arguments);
  std::memcpy(out.arguments, &kernel, sizeof kernel);
  out.shared_bytes = (kernel.shared_bytes(kernel.a.in) + 15) / 16 * 16;
  return out;
}

template <int kRowTiles, int kAhead, bool kNorm>
bool rotate(const Task& linear, const Task& behind, std::vector<Task>& out) {
  if (linear.kernel != kPersistentIndex<LinearFewKernel<kRowTiles, kAhead, kNorm>>) return false;
  const Linear a = kernel_of<LinearFewKernel<kRowTiles, kAhead, kNorm>>(linear).a;
  const RopeStore rope = kernel_of<RopeStoreKernel>(behind).a;
  if (rope.qkv != a.y || rope.n != a.rows || a.accumulate || a.activated != nullptr || a.y_stride != a.out ||
      (rope.heads + 2 * rope.kv_heads) * rope.head_dim != a.out ||
      !can_rotate(rope, slices_of(a.out, a.in))) {
    return false;
  }
  out.push_back(
      with_kernel_in(linear, LinearFewKernel<kRowTiles, kAhead, kNorm, Linear, Rotated>{a, {rope}}));
  return true;
}

bool combine(const Task& before, const Task& linear, std::vector<Task>& out) {
  const Attention of = kernel_of<AttentionSumKernel>(before).a;
  const Linear a = kernel_of<LinearFewKernel<1, 6, false>>(linear).a;
  if (of.n != 1 || of.out != nullptr || of.activations != a.activations || a.rows != 1 ||
      of.heads * of.head_dim != a.in || of.splits() > kMostStagedSplits)
    return false;
  Task fused = with_kernel_in(linear, LinearFewKernel<1, 6, false, Linear, Combined>{a, {of}});
  if (fused.shared_bytes > kPersistentShared - static_cast<int>(sizeof(Task))) return false;
  out.push_back(fused);
  return true;
}

}  // namespace

std::vector<Task> fuse(std::span<const Task> tasks) {
  std::vector<Task> out;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (i + 1 < tasks.size()) {
      const Task &one = tasks[i], &next = tasks[i + 1];
      bool fused = false;
      if (next.kernel == kPersistentIndex<RopeStoreKernel>)
        fused = rotate<1, 6, true>(one, next, out) || rotate<1, 6, false>(one, next, out) ||
                rotate<2, 4, false>(one, next, out);
      else if (one.kernel == kPersistentIndex<AttentionSumKernel> &&
               next.kernel == kPersistentIndex<LinearFewKernel<1, 6, false>>)
        fused = combine(one, next, out);
      if (fused) {
        ++i;
        continue;
      }
    }
    out.push_back(tasks[i]);
  }
  return out;
}

namespace {

LaunchShape shape_of(int blocks) {
  return {.grid_x = blocks, .threads = kPersistentThreads, .shared_bytes = kPersistentShared};
}

}  // namespace

void launch(const Persistent& table, int blocks, const Stream& stream) {
  if (stream.machine != nullptr)
    return stream.machine->run_together(PersistentKernel{table}, shape_of(blocks));
#if defined(SPECLAB_CUDA)
  run_persistent_on_device(table, shape_of(blocks), stream.device);
#else
  SPECLAB_CHECK(false, "a kernel is started on a GPU by a program that was built without nvcc");
#endif
}

GraphNode describe(const Persistent& table, int blocks) {
  return node_of(PersistentKernel{table}, shape_of(blocks));
}

#define SPECLAB_INSTANTIATE(Arguments)                   \
  template void launch(const Arguments&, const Stream&); \
  template GraphNode describe(const Arguments&);         \
  template std::optional<Task> task_of(const Arguments&);
SPECLAB_KERNELS(SPECLAB_INSTANTIATE)

}  // namespace speclab::cuda
