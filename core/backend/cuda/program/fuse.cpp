#include <algorithm>
#include <cstring>

#include "core/backend/cuda/program/persistent_tasks.h"
#include "core/backend/cuda/program/program.h"

namespace speclab::cuda {
namespace {

/// Returns the kernel of a task. Kernel must be its type.
template <typename Kernel>
Kernel kernel_of(const Task& task) {
  Kernel kernel{};
  std::memcpy(static_cast<void*>(&kernel), task.arguments, sizeof kernel);
  return kernel;
}
/// Returns the task `linear` with another kernel that has the same layout of blocks.
template <typename Kernel>
Task with_kernel_in(const Task& linear, const Kernel& kernel) {
  Task out = linear;
  out.kernel = kFusedIndex<Kernel>;
  put_kernel(kernel, out);
  out.shared_bytes = (kernel.shared_bytes(kernel.a.in) + 15) / 16 * 16;
  return out;
}

/// True if the task is a matrix product that runs LinearFewKernel<kRowTiles, kNorm>, and its outputs could be
/// queries, keys and values.
template <int kRowTiles, bool kNorm>
bool may_rotate(const Task& task) {
  using Kernel = LinearFewKernel<kRowTiles, kNorm>;
  if (task.kernel != kPersistentIndex<Kernel>) return false;
  const Linear a = kernel_of<Kernel>(task).a;
  return !a.accumulate && a.activated == nullptr && a.y_stride == a.out;
}

template <int kRowTiles, bool kNorm>
bool rotate(const Task& linear, const Task& behind, std::vector<Task>& out) {
  if (!may_rotate<kRowTiles, kNorm>(linear)) return false;
  const Linear a = kernel_of<LinearFewKernel<kRowTiles, kNorm>>(linear).a;
  const RopeStore rope = kernel_of<RopeStoreKernel>(behind).a;
  if (rope.qkv != a.y || rope.n != a.rows || (rope.heads + 2 * rope.kv_heads) * rope.head_dim != a.out ||
      !can_rotate(rope, slices_of(a.out, a.in))) {
    return false;
  }
  out.push_back(with_kernel_in(linear, LinearFewKernel<kRowTiles, kNorm, Linear, Rotated>{a, {rope}}));
  return true;
}

bool combine(const Task& before, const Task& linear, std::vector<Task>& out) {
  const Attention of = kernel_of<AttentionSumKernel<Attention>>(before).a;
  const Linear a = kernel_of<LinearFewKernel<1, false>>(linear).a;
  if (of.n != 1 || of.out != nullptr || of.activations != a.activations || a.rows != 1 ||
      of.heads * of.head_dim != a.in || of.splits() > kMostStagedSplits)
    return false;
  Task fused = with_kernel_in(linear, LinearFewKernel<1, false, Linear, Combined>{a, {of}});
  if (fused.shared_bytes > kPersistentShared - static_cast<int>(sizeof(Task))) return false;
  out.push_back(fused);
  return true;
}

}  // namespace

bool may_fuse_with_next(const Task& task) {
  if (task.kernel == kPersistentIndex<AttentionSumKernel<Attention>>) {
    const Attention of = kernel_of<AttentionSumKernel<Attention>>(task).a;
    return of.n == 1 && of.out == nullptr;
  }
  return may_rotate<1, true>(task) || may_rotate<1, false>(task) || may_rotate<2, false>(task);
}

std::vector<Task> fuse(std::span<const Task> tasks) {
  std::vector<Task> out;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (i + 1 < tasks.size()) {
      const Task &one = tasks[i], &next = tasks[i + 1];
      bool fused = false;
      if (next.kernel == kPersistentIndex<RopeStoreKernel>)
        fused = rotate<1, true>(one, next, out) || rotate<1, false>(one, next, out) ||
                rotate<2, false>(one, next, out);
      else if (one.kernel == kPersistentIndex<AttentionSumKernel<Attention>> &&
               next.kernel == kPersistentIndex<LinearFewKernel<1, false>>)
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

}  // namespace speclab::cuda
