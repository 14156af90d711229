#pragma once

#include "core/backend/cuda/kernels/law_space.h"

// Lets several blocks work on one row over the vocabulary. Each block has a piece of kRowPiece entries and
// stores its result in global memory. The block that finishes last reads the results of all blocks of its
// row and goes on alone. No block waits for another one, so the blocks need not run at the same time. A piece
// consists of whole chunks (row_order.h), so the sums have the same bits as with one block per row.

namespace speclab::cuda {

inline constexpr int kRowPiece = 4 * kSumChunk;  ///< entries of a row per block
inline constexpr int kPieceThreads = kRowPiece / kRowLoads;
/// Number of pieces of a row of n entries. The number depends on n alone.
SPECLAB_BOTH constexpr int row_pieces(int n) { return (n + kRowPiece - 1) / kRowPiece; }

/// Memory through which the blocks of a row exchange their results. Launches of one stream may share it,
/// because they touch it only after wait_for_previous().
struct RowMeeting {
  /// Room for rows * (pieces of the longest row) keys. A launch stores the largest key of each piece as
  /// [rows, pieces of its rows]. A key is made of a logit and its index (key_of()), or of a token and its
  /// arrival time in a race (race_entries()). Null: one block works on each row.
  simt::u64* best = nullptr;
  simt::u32* arrivals = nullptr;  ///< [rows], zeros before and after each launch
};

inline namespace SPECLAB_SIDE {

/// Returns true in the block of the row that calls it last. That block sees what all blocks of the row stored
/// before. `told` is memory for a number that one thread passes to the others.
template <typename Told>
SPECLAB_DEVICE bool last_of_row(const Told& told, simt::u32* arrivals) {
  simt::fence();
  simt::block_sync();
  if (simt::thread_index() == 0) told.set(0, simt::atomic_add(arrivals, 1));
  simt::block_sync();
  if (static_cast<simt::u32>(told[0]) + 1 < static_cast<simt::u32>(simt::grid_x())) return false;
  simt::fence();
  if (simt::thread_index() == 0) simt::store(arrivals, 0u);
  return true;
}

/// How the entries of a piece lie in shared memory while their sums are computed: chunk after chunk, with a
/// gap after each chunk, so that neighbouring chunks use different banks.
struct PieceOrder {
  static constexpr int kPadded = kSumChunk + kSumLanes;
  static constexpr int kChunks = kRowPiece / kSumChunk, kEntries = kChunks * kPadded;
  static constexpr int kLanes = kChunks * kSumLanes;

  SPECLAB_DEVICE static int place(int of_piece) {
    return of_piece / kSumChunk * kPadded + of_piece % kSumChunk;
  }
  /// Writes the sums of the chunks of this piece to their places in `sums`, which has one entry per chunk of
  /// the row. No entry of the row may be negative. Entries past the end of the row must be zeros, which then
  /// change no bit of a sum.
  template <typename Entry>
  SPECLAB_DEVICE static void sum_chunks(const simt::Shared<Entry>& entries, const simt::Shared<double>& lanes,
                                        int piece, int chunks, double* sums) {
    simt::block_sync();
    if (const int part = simt::thread_index(); part < kLanes) {
      const int first = part / kSumLanes * kPadded + part % kSumLanes;
      double sum = 0;
      SPECLAB_ROLLED
      for (int i = 0; i < kSumChunk; i += kRowLoads * kSumLanes) {
        SPECLAB_UNROLL
        for (int j = 0; j < kRowLoads; ++j) sum += static_cast<double>(entries[first + i + j * kSumLanes]);
      }
      lanes.set(part, sum);
    }
    simt::block_sync();
    if (const int of_piece = simt::thread_index(), chunk = piece * kChunks + of_piece;
        of_piece < kChunks && chunk < chunks) {
      double sum = 0;
      SPECLAB_UNROLL
      for (int lane = 0; lane < kSumLanes; ++lane) sum += lanes[of_piece * kSumLanes + lane];
      simt::store(sums + chunk, sum);
    }
  }
};

/// The shared memory of a block of kPieceThreads threads that has a piece of a row.
struct PieceSpace {
  static constexpr int kKeys = kPieceThreads / simt::kWarp;
  static constexpr int kKeysAt = 0, kToldAt = 8 * kKeys, kLanesAt = kToldAt + 16,
                       kWeightsAt = kLanesAt + 8 * PieceOrder::kLanes,
                       kBytes = kWeightsAt + 4 * PieceOrder::kEntries;
  static constexpr int kMostChunks = PieceOrder::kEntries / 2;  ///< sums that fit in the place of the weights
  static_assert(kKeysAt % 16 == 0 && kLanesAt % 16 == 0 && kWeightsAt % 16 == 0);

  SPECLAB_DEVICE static simt::Shared<simt::u64> keys() { return simt::shared<simt::u64>(kKeysAt, kKeys); }
  SPECLAB_DEVICE static simt::Shared<simt::u32> told() { return simt::shared<simt::u32>(kToldAt, 1); }
  SPECLAB_DEVICE static simt::Shared<double> lanes() {
    return simt::shared<double>(kLanesAt, PieceOrder::kLanes);
  }
  SPECLAB_DEVICE static simt::Shared<float> weights() {
    return simt::shared<float>(kWeightsAt, PieceOrder::kEntries);
  }
  SPECLAB_DEVICE static simt::Shared<double> sums() { return simt::shared<double>(kWeightsAt, kMostChunks); }

  SPECLAB_DEVICE static bool last_of_row(simt::u32* arrivals) { return cuda::last_of_row(told(), arrivals); }
  /// Returns the largest of the keys that the blocks of a row have stored.
  SPECLAB_DEVICE static simt::u64 largest(const simt::u64* best) {
    simt::u64 key = 0;
    SPECLAB_ROLLED
    for (int i = simt::thread_index(); i < simt::grid_x(); i += simt::block_threads()) {
      const simt::u64 other = simt::load(best + i);
      key = other > key ? other : key;
    }
    return block_largest(keys(), key);
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
