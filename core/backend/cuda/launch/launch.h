#pragma once

#include <optional>

#include "core/backend/cuda/kernels/accept/start_accept.h"
#include "core/backend/cuda/kernels/acceptance_kernel.h"
#include "core/backend/cuda/kernels/attention_kernel.h"
#include "core/backend/cuda/kernels/columns_kernel.h"
#include "core/backend/cuda/kernels/cut_kernel.h"
#include "core/backend/cuda/kernels/elementwise_kernel.h"
#include "core/backend/cuda/kernels/kv_kernel.h"
#include "core/backend/cuda/kernels/linear/linear_free_kernel.h"
#include "core/backend/cuda/kernels/linear/linear_kernel.h"
#include "core/backend/cuda/kernels/norm_kernel.h"
#include "core/backend/cuda/program/persistent.h"
#include "core/backend/cuda/program/persistent_fused.h"
#include "core/backend/cuda/kernels/plain_kernel.h"
#include "core/backend/cuda/program/plan_kernel.h"
#include "core/backend/cuda/kernels/sampling_kernel.h"
#include "core/backend/cuda/kernels/siblings_kernel.h"
#include "core/backend/cuda/kernels/speed_kernel.h"
#include "core/backend/cuda/kernels/weights_kernel.h"
#include "core/backend/cuda/launch/families.h"
#include "core/backend/cuda/launch/launch_shape.h"
#include "core/backend/graph.h"

// Starts kernels, on a GPU or on a simulated one.

namespace speclab::cuda {

/// True if this program was built with nvcc and so has code for GPUs. It does not say that there is a GPU.
bool built_for_gpus();

/// Starts the kernel for `arguments`. The function with_kernel() in the kernel's header chooses the kernel.
/// Throws Error with the name of the kernel if the device refuses the launch.
template <typename Arguments>
void launch(const Arguments& arguments, const Stream& stream);

/// Describes the launch that launch() starts with these arguments on a device whose blocks have at most
/// `most_shared_bytes` of shared memory (Device::most_shared_bytes()).
template <typename Arguments>
GraphNode describe(const Arguments& arguments, int most_shared_bytes);

/// Returns the launch as a task of a persistent kernel. Returns nullopt if its kernel is not among
/// PersistentKernels, or if its blocks need more threads or shared memory than inner blocks can have.
template <typename Arguments>
std::optional<Task> task_of(const Arguments& arguments);
/// Starts a task, fused or not, as a launch of its own.
void launch(const Task& task, const Stream& stream);
GraphNode describe(const Task& task, int most_shared_bytes);
/// Returns the name of a kernel of a task (Task::kernel).
const char* kernel_name(int kernel);
/// One cooperative launch that runs all tasks of a table.
struct TableLaunch {
  Persistent table;
  int blocks = 1;
};
void launch(const TableLaunch& table, const Stream& stream);
GraphNode describe(const TableLaunch& table, int most_shared_bytes);

// launch() calls these functions, run_on_device() for a GPU and run_on_machine() for a simulated GPU. The
// templates are instantiated in device_*.cu and in core/backend/cuda/simulator/host_*.cpp, with one file of
// each kind per family of kernels (families.h).
template <typename Arguments>
void run_on_device(const Arguments& arguments, const Stream& stream);
void run_on_device(const Task& task, const Stream& stream);
void run_on_device(const TableLaunch& table, const LaunchShape& shape, const Stream& stream);
template <typename Arguments>
void run_on_machine(const Arguments& arguments, const Stream& stream);
void run_on_machine(const Task& task, const Stream& stream);
void run_on_machine(const TableLaunch& table, const LaunchShape& shape, const Stream& stream);

}  // namespace speclab::cuda
