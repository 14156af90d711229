#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/cuda/kernels/simt.h"
#include "core/backend/cuda/program/grid_barrier.h"

// A persistent kernel: one launch that does the work of many. It stays on the device for a whole forward, or
// for all forwards of a drafted chain.
//
// Launches dominate the time of a small model. SmolLM2-135M reads its weights in 0.09 ms on an H100, but a
// forward has about 150 kernels that start more than a microsecond apart (Spector et al. 2025, "Look Ma, No
// Bubbles!"). Here the launches become tasks in a table on the device. A cooperative launch with one block
// per multiprocessor goes through the table. Each block runs its share of a task's blocks inside of itself
// (inner blocks, simt.h), with the same code as the separate kernel and so with the same bits. Then it waits
// for the other blocks (grid_barrier.h). While the first warp waits, the last warp prefetches the block's
// share of the weights of later tasks into L2, also if the block had no share of this task. So memory stays
// busy while blocks wait. If a block never arrives, the launch ends with an error after two seconds, and the
// host can read which block it was (LateBlock).

namespace speclab::cuda {

inline constexpr int kPersistentThreads = 256;
/// Bytes of shared memory per block, the same for every table: a task, the rings of weights of eight warps
/// (64 KiB, linear.h) and a row of 16,000 inputs. A GPU with 100 KiB per multiprocessor has this much, too.
inline constexpr int kPersistentShared = 96 << 10;
inline constexpr int kTaskBytes = 320;       ///< bytes of room for a kernel object, which holds its arguments
inline constexpr int kPrefetchPiece = 2048;  ///< bytes per prefetch of a thread

/// One launch in the table.
struct alignas(16) Task {
  std::int32_t kernel = 0;  ///< index in PersistentKernels followed by FusedKernels (persistent_tasks.h)
  std::int32_t grid[3] = {1, 1, 1};
  std::int32_t threads = 32;      ///< per inner block
  std::int32_t shared_bytes = 0;  ///< per inner block, a multiple of 16
  std::int32_t together = 1;      ///< inner blocks that a block runs at once
  std::int32_t prefetch_end =
      0;  ///< end of this task's range of the prefetches; the range begins where the previous one ends
  // The weights of a linear layer. The host plans prefetches with them.
  const void* weights = nullptr;
  simt::u64 weight_bytes = 0;
  alignas(16) std::byte arguments[kTaskBytes] = {};  ///< the kernel object, which holds its arguments
};

/// Consecutive bytes of weights; both numbers are multiples of 16.
struct Prefetch {
  const void* from = nullptr;
  simt::u64 bytes = 0;
};

/// What the host learns about a launch that ended because a block did not arrive at a barrier. It lies in
/// memory that the host shares with the device.
struct LateBlock {
  simt::u32 found = 0;       ///< 1: the other members are set
  std::int32_t task = -1;    ///< the barrier is the one after this task
  std::int32_t kernel = -1;  ///< Task::kernel of this task
  std::int32_t block = -1;   ///< -1: not known
};

struct Persistent {
  const Task* tasks = nullptr;
  int count = 0;
  int first_prefetches = 0;              ///< number of prefetches before the first task
  const Prefetch* prefetches = nullptr;  ///< those before the first task, then those of the tasks in order
  GridCounters counters;
  LateBlock* late = nullptr;  ///< null: nothing is written
};

}  // namespace speclab::cuda
