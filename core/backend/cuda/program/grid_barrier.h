#pragma once

#include "core/backend/cuda/kernels/simt.h"

// A barrier between all blocks of a cooperative launch: one number in memory that counts arrivals and never
// goes back, so that nothing has to be reset between launches. In two halves, so that a block can begin what
// needs no other block before it waits.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// Of `arrived`: a number that is zero before the first launch and belongs to launches of one grid. All
/// threads of a block do the same with their own copy; every arrive() is followed by a wait().
class GridBarrier {
 public:
  /// A block that begins late may find arrivals of this launch there, fewer than one of each block.
  SPECLAB_DEVICE explicit GridBarrier(simt::u64* arrived)
      : arrived_(arrived), blocks_(static_cast<simt::u64>(simt::grid_x())) {
    if (simt::thread_index() == 0) passed_ = simt::load_acquire(arrived_) / blocks_ * blocks_;
  }
  /// What the threads of this block have stored will be seen by all blocks behind their wait().
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
