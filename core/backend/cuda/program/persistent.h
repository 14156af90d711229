#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/cuda/kernels/simt.h"

// Many launches as one: a kernel that stays on the device for a whole forward, or for the forwards of a
// drafted chain.
//
// A small model is bound by its launches: SmolLM2-135M reads its weights in 0.09 ms on an H100 and has some
// 200 kernels of more than a microsecond between their beginnings (Spector et al. 2025, "Look Ma, No
// Bubbles!"). Here the launches are tasks in a table on the device. As many blocks as are resident at once (a
// cooperative launch) go through it together: each runs its share of a task's blocks as blocks inside of
// itself, by the same code as the kernel of that launch, so with the same bits, and then waits for the others
// (grid_barrier.h). Between its arrival at that barrier and the wait it fetches its part of weights that
// later tasks read into L2, so that memory is read while blocks wait, and also by those that had nothing to
// do in the task.

namespace speclab::cuda {

inline constexpr int kPersistentThreads = 256;
inline constexpr int kPersistentShared = 64 << 10;  ///< of a block, so that one grid fits all tables
inline constexpr int kTaskBytes = 320;              ///< of a kernel with its arguments, at most
inline constexpr int kPrefetchPiece = 2048;         ///< bytes that a thread asks for at once

/// One launch of the table.
struct alignas(16) Task {
  std::int32_t kernel = 0;  ///< of PersistentKernels
  std::int32_t grid[3] = {1, 1, 1};
  std::int32_t threads = 32;      ///< of a block inside
  std::int32_t shared_bytes = 0;  ///< of a block inside, a multiple of 16
  std::int32_t together = 1;      ///< blocks inside of one block at once
  std::int32_t prefetch_end =
      0;  ///< the prefetches behind this task end here and begin where those of the task before end
  // What it reads that no kernel writes: of a linear layer the weights. For the host, which plans prefetches.
  const void* weights = nullptr;
  simt::u64 weight_bytes = 0;
  alignas(16) std::byte arguments[kTaskBytes] = {};  ///< the kernel, with its arguments
};

/// Consecutive bytes of weights. Multiples of 16.
struct Prefetch {
  const void* from = nullptr;
  simt::u64 bytes = 0;
};

struct Persistent {
  const Task* tasks = nullptr;
  int count = 0;
  int first_prefetches = 0;              ///< how many are asked for before the first task
  const Prefetch* prefetches = nullptr;  ///< first those, then those of the tasks
  simt::u64* arrived = nullptr;          ///< of GridBarrier
};

}  // namespace speclab::cuda
