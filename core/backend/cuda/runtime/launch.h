#pragma once

#include <optional>

#include "core/backend/cuda/kernels/acceptance_kernel.h"
#include "core/backend/cuda/kernels/attention_kernel.h"
#include "core/backend/cuda/kernels/columns_kernel.h"
#include "core/backend/cuda/kernels/elementwise_kernel.h"
#include "core/backend/cuda/kernels/kv_kernel.h"
#include "core/backend/cuda/kernels/linear/linear_free_kernel.h"
#include "core/backend/cuda/kernels/linear/linear_kernel.h"
#include "core/backend/cuda/kernels/norm_kernel.h"
#include "core/backend/cuda/program/persistent.h"
#include "core/backend/cuda/kernels/plain_kernel.h"
#include "core/backend/cuda/program/plan_kernel.h"
#include "core/backend/cuda/kernels/sampling_kernel.h"
#include "core/backend/cuda/kernels/siblings_kernel.h"
#include "core/backend/cuda/simulator/simt.h"
#include "core/backend/cuda/kernels/speed_kernel.h"
#include "core/backend/cuda/kernels/weights_kernel.h"
#include "core/backend/graph.h"

// How kernels are started, on a GPU or on a simulated one.

namespace speclab::simt {
class Machine;
}

namespace speclab::cuda {

/// Where launches go, in order.
struct Stream {
  void* device = nullptr;            ///< a cudaStream_t (null: the default stream), unless ...
  simt::Machine* machine = nullptr;  ///< ... this is set: launches run there before they return
};

/// True when this program has code for GPUs (built with nvcc); whether there is one is another question.
bool built_for_gpus();

/// Starts the kernel of `arguments` (with_kernel in its header). Throws Error that names the kernel when the
/// device refuses.
template <typename Arguments>
void launch(const Arguments& arguments, const Stream& stream);

/// What launch() of the same arguments starts.
template <typename Arguments>
GraphNode describe(const Arguments& arguments);

/// The same launch as a task of a persistent kernel; nothing when its kernel is not among PersistentKernels.
template <typename Arguments>
std::optional<Task> task_of(const Arguments& arguments);
/// Starts a task as the launch that it stands for.
void launch(const Task& task, const Stream& stream);
GraphNode describe(const Task& task);
/// Starts all tasks of a table as one cooperative launch of so many blocks.
void launch(const Persistent& table, int blocks, const Stream& stream);
GraphNode describe(const Persistent& table, int blocks);

// One line here per kernel, and one in host_kernels.cpp and device_kernels.cu each.
#define SPECLAB_KERNELS(apply)                                                                           \
  apply(PackWeights) apply(Gather) apply(Linear) apply(LinearFree) apply(Norm) apply(Activate)           \
      apply(Elementwise) apply(RoundRows) apply(Standardise) apply(Sample) apply(Siblings) apply(Accept) \
          apply(LayRows) apply(MoveAccepted) apply(Settle) apply(Stamp) apply(Continue) apply(RopeStore) \
              apply(MoveSlots) apply(CopyKv) apply(AttentionSplits) apply(AttentionSum) apply(CopyRows)  \
                  apply(FillColumns) apply(UnpackWeights) apply(RoundPlain) apply(ReadAll)               \
                      apply(MultiplyAll)

// The two ways that launch goes.
template <typename Arguments>
void run_on_machine(const Arguments& arguments, simt::Machine& machine);
template <typename Arguments>
void run_on_device(const Arguments& arguments, void* stream);
void run_task_on_device(const Task& task, void* stream);
void run_persistent_on_device(const Persistent& table, const LaunchShape& shape, void* stream);

}  // namespace speclab::cuda
