#pragma once

#include "core/backend/cuda/kernels/linear/fragments.h"

// The ring in shared memory through which the weights of a warp stream.
//
// A warp that loads weights into registers cannot wait for the oldest load alone. Loads return in any order,
// so the hardware only counts them, and nvcc puts all weight loads of a loop on one of the six counters
// (scoreboards). The warp would then wait until none is in flight. Groups of asynchronous copies, in
// contrast, complete in order, and a thread can wait for the oldest group while younger ones stay in flight.
//
// Each lane copies its own pieces and reads them back itself. So a lane waits for its own copies only, and no
// barrier is needed.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

/// A ring of kSlots slots. A slot has kPieces pieces of 16 bytes per lane.
template <int kSlots, int kPieces>
class WeightRing {
 public:
  static constexpr int kBytes = kSlots * kPieces * simt::kWarp * 16;  ///< per warp

  /// The rings of all warps of the block begin at `offset_bytes`.
  SPECLAB_DEVICE explicit WeightRing(int offset_bytes)
      : ring_(simt::shared<simt::u16>(offset_bytes + simt::warp_index() * kBytes, kBytes / 2)),
        lane_(simt::lane() * kPiece) {}

  /// Starts to copy this lane's piece. The caller ends a group of copies with simt::async_commit().
  SPECLAB_DEVICE void copy(int slot, int piece, const simt::u16* from) const {
    simt::async_copy16_streamed(ring_, at(slot, piece), from);
  }
  SPECLAB_DEVICE simt::Bytes16 read(int slot, int piece) const { return ring_.get16(at(slot, piece)); }
  /// Waits until at most `kSlots - 1` groups are in flight. If a group holds the weights for one block of
  /// kTileIn inputs, the oldest unread weights have then arrived, and the others may still be in flight.
  SPECLAB_DEVICE static void wait() { simt::async_wait<kSlots - 1>(); }
  SPECLAB_DEVICE static int after(int slot) { return slot + 1 < kSlots ? slot + 1 : 0; }

 private:
  SPECLAB_DEVICE int at(int slot, int piece) const {
    return (slot * kPieces + piece) * (simt::kWarp * kPiece) + lane_;
  }
  simt::Shared<simt::u16> ring_;
  int lane_;
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
