#pragma once

#include "core/backend/cuda/kernels/linear/fragments.h"
#include "core/backend/cuda/kernels/rows.h"

// Brings the operands of a linear layer into row-major order, because cuBLASLt (cublaslt.h) cannot read the
// order of fragments.h. One kernel unpacks a matrix. The other rounds rows of floats to bf16.

namespace speclab::cuda {

/// Undoes PackWeights for a whole matrix.
struct UnpackWeights {
  const simt::u16* weights = nullptr;  ///< [out, in] as in fragments.h
  int out = 0, in = 0;
  simt::u16* rows = nullptr;  ///< [out, in], 16-byte aligned
};

/// Rounds rows of floats to the nearest bf16, to the same numbers as RoundRows.
struct RoundPlain {
  const float* x = nullptr;  ///< [rows, in]
  int rows = 0, in = 0;
  simt::u16* plain = nullptr;  ///< [rows, in], 16-byte aligned
};

inline namespace SPECLAB_SIDE {

/// Stores elements [k, k + 8) of a row of `in` elements, k a multiple of 8. Does not write past the end of
/// the row.
SPECLAB_DEVICE void store_plain(simt::u16* matrix, int in, int row, int k, const simt::Bytes16& eight) {
  simt::u16* to = matrix + static_cast<std::size_t>(row) * static_cast<std::size_t>(in) + k;
  if (in % kPiece == 0) return simt::store16(to, eight);
  SPECLAB_UNROLL
  for (int i = 0; i < kPiece; ++i) {
    if (k + i < in) simt::store(to + i, static_cast<simt::u16>(eight.word[i / 2] >> i % 2 * 16));
  }
}

/// A thread reads the pieces of one lane for both halves of a tile (fragments.h: the matrix unit adds the 32
/// inputs of a tile in two steps of 16). Together they are eight neighbouring elements of each of two rows.
struct UnpackWeightsKernel {
  static constexpr const char* kName = "unpack_weights";
  static constexpr int kThreads = kRowThreads;
  UnpackWeights a;

  SPECLAB_DEVICE void operator()() const {
    const int in_tiles = tiles_of(a.in, kTileIn);
    const long long index = static_cast<long long>(simt::block_x()) * kThreads + simt::thread_index();
    if (index >= static_cast<long long>(tiles_of(a.out, kTileOut)) * in_tiles * simt::kWarp) return;
    const int lane = static_cast<int>(index % simt::kWarp);
    const int m = static_cast<int>(index / simt::kWarp / in_tiles) * kTileOut + lane / 4;
    const int k = static_cast<int>(index / simt::kWarp % in_tiles) * kTileIn + lane % 4 * kPiece;
    if (k >= a.in) return;
    const simt::Bytes16 first = simt::load16_streamed(a.weights + weight_at(a.in, m, k)),
                        second = simt::load16_streamed(a.weights + weight_at(a.in, m, k + 4));
    if (m < a.out)
      store_plain(a.rows, a.in, m, k, {{first.word[0], first.word[2], second.word[0], second.word[2]}});
    if (m + 8 < a.out)
      store_plain(a.rows, a.in, m + 8, k, {{first.word[1], first.word[3], second.word[1], second.word[3]}});
  }
};

struct RoundPlainKernel {
  static constexpr const char* kName = "round_plain";
  static constexpr int kThreads = kRowThreads;
  RoundPlain a;

  SPECLAB_DEVICE void operator()() const {
    const int k = kPiece * (simt::block_x() * kThreads + simt::thread_index()), row = simt::block_y();
    if (k >= a.in) return;
    const float* x = a.x + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.in);
    store_plain(a.plain, a.in, row, k, Piece::read(x, k, a.in, on_16_bytes(x, 0)).rounded());
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const UnpackWeights& a, const Visit& visit) {
  const long long lanes =
      static_cast<long long>(tiles_of(a.out, kTileOut)) * tiles_of(a.in, kTileIn) * simt::kWarp;
  visit(UnpackWeightsKernel{a},
        LaunchShape{.grid_x = static_cast<int>((lanes + kRowThreads - 1) / kRowThreads),
                    .threads = kRowThreads});
}
template <typename Visit>
void with_kernel(const RoundPlain& a, const Visit& visit) {
  visit(
      RoundPlainKernel{a},
      LaunchShape{.grid_x = tiles_of(a.in, kPiece * kRowThreads), .grid_y = a.rows, .threads = kRowThreads});
}

}  // namespace speclab::cuda
