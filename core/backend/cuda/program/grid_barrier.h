#pragma once

#include "core/backend/cuda/kernels/simt.h"

// A barrier between all blocks of a cooperative launch. One number in memory counts arrivals. It never
// decreases, so nothing has to be reset between launches. The barrier has two halves, arrive() and wait(), so
// that a block can do work in between that needs no other block.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// Every thread of a block has its own copy and makes the same calls. A wait() must follow every arrive().
class GridBarrier {
 public:
  /// `arrived` is zero before the first launch. All launches that use it have the same number of blocks. A
  /// block that starts late may already find arrivals of this launch in the counter, but fewer than one per
  /// block, so the division below rounds them off.
  SPECLAB_DEVICE explicit GridBarrier(simt::u64* arrived)
      : arrived_(arrived), blocks_(static_cast<simt::u64>(simt::grid_x())) {
    if (simt::thread_index() == 0) passed_ = simt::load_acquire(arrived_) / blocks_ * blocks_;
  }
  /// Publishes the stores of this block: all blocks see them after their wait().
  SPECLAB_DEVICE void arrive() {
    simt::block_sync();
    if (simt::thread_index() == 0) simt::add_release(arrived_, 1);
  }
  SPECLAB_DEVICE void wait() {
    if (simt::thread_index() == 0) {
      passed_ += blocks_;
      while (simt::load_acquire(arrived_) < passed_) simt::pause();
    }
    simt::block_sync();
  }

 private:
  simt::u64* arrived_;
  simt::u64 blocks_, passed_ = 0;
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
