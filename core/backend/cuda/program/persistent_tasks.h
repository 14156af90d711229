#pragma once

#include <cstring>
#include <tuple>
#include <type_traits>

#include "core/backend/cuda/kernels/attention_kernel.h"
#include "core/backend/cuda/kernels/columns_kernel.h"
#include "core/backend/cuda/kernels/elementwise_kernel.h"
#include "core/backend/cuda/kernels/kv_kernel.h"
#include "core/backend/cuda/kernels/linear/linear_few.h"
#include "core/backend/cuda/kernels/norm_kernel.h"
#include "core/backend/cuda/program/persistent.h"
#include "core/backend/cuda/program/persistent_fused.h"
#include "core/backend/cuda/program/plan_kernel.h"
#include "core/backend/cuda/kernels/sampling_kernel.h"
#include "core/backend/cuda/kernels/weights_kernel.h"

// The kernels whose launches can become tasks of a persistent kernel.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// Kernels that can be a task or a launch of their own. Each is also in a list SPECLAB_..._TASKS of
/// core/backend/cuda/launch/families.h. PersistentKernels leaves out kernels that need more resources than a
/// block of the persistent kernel has.
using PersistentKernels =
    std::tuple<LinearFewKernel<1, true>, LinearFewKernel<1, false>, LinearFewKernel<2, false>,
               NormKernel<NormOf::kRms>, RopeStoreKernel, AttentionSplitsKernel<Attention>,
               AttentionSumKernel<Attention>, GatherKernel, RoundRowsKernel, CopyRowsKernel,
               FillColumnsKernel, ActivateKernel<Activation::kSilu>, ElementwiseKernel<ElementwiseOf::kAdd>,
               ElementwiseKernel<ElementwiseOf::kAddBias>, LayRowsKernel, StandardiseKernel<false>,
               SampleKernel<PhiloxCoins>, LargestOfRowsKernel, StandardisePiecesKernel<false>, RaceKernel>;
/// Kernels that replace two neighbouring tasks (fuse() in program.h). Their numbers follow those of
/// PersistentKernels.
using FusedKernels =
    std::tuple<LinearFewKernel<1, true, Linear, Rotated>, LinearFewKernel<1, false, Linear, Rotated>,
               LinearFewKernel<2, false, Linear, Rotated>, LinearFewKernel<1, false, Linear, Combined>>;

template <typename Kernel, typename... Each>
constexpr int index_among(const std::tuple<Each...>*) {
  int index = 0, found = -1;
  ((found = std::is_same_v<Kernel, Each> ? index : found, ++index), ...);
  return found;
}
/// The number of a kernel among PersistentKernels; -1: not among them.
template <typename Kernel>
inline constexpr int kPersistentIndex = index_among<Kernel>(static_cast<const PersistentKernels*>(nullptr));
template <typename Kernel>
inline constexpr int kFusedIndex = static_cast<int>(std::tuple_size_v<PersistentKernels>) +
                                   index_among<Kernel>(static_cast<const FusedKernels*>(nullptr));

/// Copies a kernel's struct, which holds its arguments, into a task. Bytes that belong to no member become
/// zero, so that equal kernels have equal bytes.
template <typename Kernel>
void put_kernel(Kernel kernel, Task& task) {
  static_assert(sizeof kernel <= kTaskBytes && std::is_trivially_copyable_v<Kernel>);
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
  __builtin_clear_padding(&kernel);
#endif
  std::memset(task.arguments, 0, sizeof task.arguments);
  std::memcpy(task.arguments, &kernel, sizeof kernel);
}

/// Calls visit(kernel, shape) on the host for the launch that a task stands for. Only the kernels
/// of the tuple are tried; `first` is the number of the first one.
template <typename Visit, typename... Kernels>
void with_task(const Task& task, int first, const std::tuple<Kernels...>*, const Visit& visit) {
  const auto visit_as = [&]<typename Kernel>(std::type_identity<Kernel>) {
    if (task.kernel != first++) return;
    Kernel kernel{};
    std::memcpy(static_cast<void*>(&kernel), task.arguments, sizeof kernel);
    visit(kernel, LaunchShape{task.grid[0], task.grid[1], task.grid[2], task.threads, task.shared_bytes});
  };
  (visit_as(std::type_identity<Kernels>()), ...);
}
template <typename Visit>
void with_task(const Task& task, const Visit& visit) {
  with_task(task, 0, static_cast<const PersistentKernels*>(nullptr), visit);
  with_task(task, static_cast<int>(std::tuple_size_v<PersistentKernels>),
            static_cast<const FusedKernels*>(nullptr), visit);
}

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
