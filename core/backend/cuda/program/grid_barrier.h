#pragma once

#include "core/backend/cuda/kernels/simt.h"

// A barrier between all blocks of a cooperative launch. Numbers in memory count arrivals. They never
// decrease, so nothing has to be reset between launches. The barrier has two halves, arrive() and wait(), so
// that between them the warps other than the first can do work that needs no other block.

namespace speclab::cuda {

/// The memory of a barrier. It is zero before the first launch. All launches that use it have the same number
/// of blocks.
struct GridCounters {
  simt::u64* arrived = nullptr;  ///< arrivals of all blocks
  simt::u32* of_blocks =
      nullptr;  ///< [blocks] arrivals of each; null: wait() cannot tell which block is missing
};

inline namespace SPECLAB_SIDE {

/// Every thread of a block has a GridBarrier of its own and makes the same calls. A wait() must follow every
/// arrive().
class GridBarrier {
 public:
  /// A block that starts late may already find arrivals of this launch in the counter, but fewer than one per
  /// block, so the division below rounds them off.
  SPECLAB_DEVICE explicit GridBarrier(const GridCounters& counters)
      : counters_(counters), blocks_(static_cast<simt::u64>(simt::grid_x())) {
    if (simt::thread_index() == 0) passed_ = simt::load_acquire(counters_.arrived) / blocks_ * blocks_;
  }
  /// Publishes the stores of this block: all blocks see them after their wait().
  SPECLAB_DEVICE void arrive() {
    simt::block_sync();
    if (simt::thread_index() != 0) return;
    if (counters_.of_blocks != nullptr) simt::atomic_add(counters_.of_blocks + simt::block_x(), 1);
    simt::add_release(counters_.arrived, 1);
  }
  /// Thread 0 polls. If the other blocks have not arrived after simt::kMostWaitNs, it calls late(block) with
  /// the first block that is missing, or -1 if that is not known, and ends the launch with a trap.
  template <typename Late>
  SPECLAB_DEVICE void wait(const Late& late) {
    if (simt::thread_index() == 0) {
      passed_ += blocks_;
      simt::Waiting waiting = simt::wait_begin();
      while (simt::load_acquire(counters_.arrived) < passed_) {
        simt::pause();
        if (simt::waited_long(waiting)) {
          late(missing_block());
          simt::trap();
        }
      }
    }
    simt::block_sync();
  }
  SPECLAB_DEVICE void wait() {
    wait([](int) {});
  }

 private:
  /// Returns the first missing block, or -1 if that is not known. The count of a missing block is one less
  /// than the count of this block. All blocks that have arrived have the same count as this block.
  SPECLAB_DEVICE int missing_block() const {
    if (counters_.of_blocks == nullptr) return -1;
    const simt::u32 own = simt::atomic_add(counters_.of_blocks + simt::block_x(), 0);
    for (int block = 0; block < simt::grid_x(); ++block) {
      if (simt::atomic_add(counters_.of_blocks + block, 0) == own - 1) return block;
    }
    return -1;
  }
  GridCounters counters_;
  simt::u64 blocks_, passed_ = 0;
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
