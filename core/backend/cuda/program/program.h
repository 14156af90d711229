#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/backend/cuda/program/persistent.h"
#include "core/backend/cuda/runtime/device.h"
#include "core/backend/cuda_kernels.h"

// The host's part of persistent kernels (persistent.h). It chooses the size of the grid and makes the table
// of tasks.

namespace speclab::cuda {

/// Largest number of blocks of a persistent kernel per multiprocessor. One is enough: its eight warps have
/// 64 KiB of weights in flight, more than twice what Little's law (bytes in flight = bandwidth * latency)
/// asks for. Each further block would make the barrier slower.
inline constexpr int kMostResident = 1;
/// Returns the number of blocks of the grid. If the device cannot run persistent kernels, throws Error that
/// names the device and what it lacks.
int persistent_blocks(const PersistentLimits& limits, const std::string& device);

/// How far prefetches run in advance of the tasks, in bytes of weights. By Little's law (at the latency in
/// linear.h) this is 2.4 times the bytes that must be in flight at 4.3 TB/s, and 3.5 times the bytes that
/// must be in flight at 3 TB/s. It is a fifth of the L2 of an A100.
inline constexpr std::size_t kPrefetchAhead = std::size_t{8} << 20;

/// A table of tasks. In memory the prefetches follow the tasks.
struct TaskTable {
  std::vector<Task> tasks;
  std::vector<Prefetch> prefetches;
  int first_prefetches = 0;

  std::size_t bytes() const { return tasks.size() * sizeof(Task) + prefetches.size() * sizeof(Prefetch); }
  /// Writes bytes() bytes to `to`.
  void write(std::byte* to) const;
  /// Returns the arguments of the kernel for a copy of the table at address `table`.
  Persistent arguments(const void* table, const GridCounters& counters, LateBlock* late = nullptr) const;
};

/// Throws Error that names the block and the task if a launch with this many blocks has ended because a block
/// did not arrive at a barrier. Otherwise does nothing.
void check_late(const LateBlock& late, int blocks);

/// Makes the table and plans its prefetches. The kernel prefetches before the first task and between tasks.
/// Each time it prefetches the weights of the tasks to come, up to `ahead` bytes from the start of the next
/// task's weights. If several tasks read the same weights, the kernel prefetches them for each of these
/// tasks.
TaskTable make_table(std::vector<Task> tasks, std::size_t ahead = kPrefetchAhead);

/// Fuses neighbouring tasks where possible: RopeStore with the product before it, AttentionSum with the
/// product after it. A Llama layer then has five tasks for one row.
std::vector<Task> fuse(std::span<const Task> tasks);
/// True if fuse() may be able to fuse `task` with the task after it. Whether it does depends on that task,
/// too.
bool may_fuse_with_next(const Task& task);

/// Fewer tasks than this are launched one by one.
inline constexpr std::size_t kLeastTasks = 8;
/// With kAuto, tasks that read more bytes of weights than this are launched one by one, because for larger
/// models the time to read the weights hides the launches.
inline constexpr std::size_t kMostAutoWeights = std::size_t{1} << 30;
/// True if these tasks should become one launch.
bool worth_one_launch(std::span<const Task> tasks, CudaKernels kernels);

/// Bytes of the weights that the tasks read, each matrix counted once.
std::size_t distinct_weights(std::span<const Task> tasks);

}  // namespace speclab::cuda
