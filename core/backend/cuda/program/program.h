#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/backend/cuda/program/persistent.h"
#include "core/backend/cuda/runtime/device.h"
#include "core/backend/cuda_kernels.h"

// The host's side of persistent.h: how large its grid is, and the table that it goes through.

namespace speclab::cuda {

/// Blocks of a multiprocessor that are used: eight warps of a linear layer have 48 KiB of weights under way,
/// three times what Little's law asks for (linear.h), and every block more makes the barrier longer.
inline constexpr int kMostResident = 1;
/// Blocks of the grid. Throws Error that names the device and what it lacks.
int persistent_blocks(const PersistentLimits& limits, const std::string& device);

/// Weights that are asked for ahead of the task that reads them: about four times what is under way at 3
/// to 4.3 TB/s (linear.h), a fifth of the L2 of an A100.
inline constexpr std::size_t kPrefetchAhead = std::size_t{8} << 20;

/// A table as it lies in memory: tasks, then prefetches.
struct TaskTable {
  std::vector<Task> tasks;
  std::vector<Prefetch> prefetches;
  int first_prefetches = 0;

  std::size_t bytes() const { return tasks.size() * sizeof(Task) + prefetches.size() * sizeof(Prefetch); }
  /// to: bytes().
  void write(std::byte* to) const;
  /// Of a copy that lies at `table`.
  Persistent arguments(const void* table, simt::u64* arrived) const;
};

/// Plans the prefetches: before the first task, and behind each, everything is asked for that tasks read up
/// to `ahead` bytes behind the beginning of the next task's weights; nothing twice.
TaskTable make_table(std::vector<Task> tasks, std::size_t ahead = kPrefetchAhead);

/// The same with neighbours made one where they can be: the rotation and keeping of keys and values with the
/// product before it, the sum of attention's splits with the product behind it. A layer of a Llama then has
/// five tasks at one row.
std::vector<Task> fuse(std::span<const Task> tasks);

/// Tasks that are fewer are not worth a cooperative launch.
inline constexpr std::size_t kLeastTasks = 8;
/// With kAuto: beyond half a billion parameters of bf16 launches hide behind the weights.
inline constexpr std::size_t kMostAutoWeights = std::size_t{1} << 30;
/// Whether tasks that wait become one launch.
bool worth_one_launch(std::span<const Task> tasks, CudaKernels kernels);

/// Bytes of weights that tasks read, each matrix once.
std::size_t distinct_weights(std::span<const Task> tasks);

}  // namespace speclab::cuda
