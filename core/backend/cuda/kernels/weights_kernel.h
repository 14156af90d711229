#pragma once

#include "core/backend/cuda/kernels/linear/fragments.h"
#include "core/backend/cuda/kernels/rows.h"

// Packs weights and activations into the order of fragments.h, and reads rows of a packed table.

namespace speclab::cuda {

/// Packs rows [first, first + count) of a bf16 matrix [out, in]. `first` is a multiple of 16. `count` is a
/// multiple of 16, too, unless first + count is `out`. The padding becomes zero.
struct PackWeights {
  static constexpr bool kWritesWeights = true;
  const simt::u16* rows = nullptr;  ///< [count, in]
  int first = 0, count = 0;
  int out = 0, in = 0;
  simt::u16* weights = nullptr;  ///< the whole packed matrix
};

/// Reads rows tokens[i] of a packed table as floats. The kernel does not check that the tokens are below the
/// table's `out`.
struct Gather {
  const simt::u16* weights = nullptr;
  int in = 0;
  const std::int32_t* tokens = nullptr;  ///< [rows]
  int rows = 0;
  float* y = nullptr;  ///< [rows, in]
};

/// Rounds rows of floats to the nearest bf16, as input of a linear layer.
struct RoundRows {
  const float* x = nullptr;  ///< row i begins at x + i * x_stride
  int x_stride = 0;
  int rows = 0, in = 0;
  simt::u16* activations = nullptr;  ///< [rows, in] as in fragments.h
};

inline namespace SPECLAB_SIDE {

/// Uses one thread per piece of 16 bytes of the packed matrix.
struct PackWeightsKernel {
  static constexpr const char* kName = "pack_weights";
  static constexpr int kThreads = kRowThreads;
  static constexpr int kPieces = kTileOut * kTileIn / kPiece;  // pieces of a tile
  PackWeights a;

  SPECLAB_DEVICE void operator()() const {
    const int in_tiles = tiles_of(a.in, kTileIn);
    const long long index = static_cast<long long>(simt::block_x()) * kThreads + simt::thread_index();
    if (index >= static_cast<long long>(tiles_of(a.count, kTileOut)) * in_tiles * kPieces) return;
    const int piece = static_cast<int>(index % kPieces), lane = piece % 32, step = piece / 32;
    const int m = static_cast<int>(index / kPieces / in_tiles) * kTileOut + lane / 4;  // relative to `first`
    const int k = static_cast<int>(index / kPieces % in_tiles) * kTileIn + lane % 4 * kPiece + step * 4;
    simt::Bytes16 packed;
    SPECLAB_UNROLL
    for (int word = 0; word < 4; ++word) packed.word[word] = pair(m + word % 2 * 8, k + word / 2 * 2);
    simt::store16(a.weights + weight_at(a.in, a.first + m, k), packed);
  }
  SPECLAB_DEVICE simt::u32 pair(int m, int k) const { return element(m, k) | element(m, k + 1) << 16; }
  SPECLAB_DEVICE simt::u32 element(int m, int k) const {
    if (m >= a.count || k >= a.in) return 0;
    return simt::load_constant(a.rows + static_cast<std::size_t>(m) * static_cast<std::size_t>(a.in) + k);
  }
};

/// Uses one thread per two elements that are neighbours in the packed table.
struct GatherKernel {
  static constexpr const char* kName = "gather";
  static constexpr int kThreads = kRowThreads;
  Gather a;

  SPECLAB_DEVICE void operator()() const {
    const int k = 2 * (simt::block_x() * kThreads + simt::thread_index()), row = simt::block_y();
    if (k >= a.in) return;
    const int token = simt::load(a.tokens + row);
    const simt::u32 pair =
        simt::load_constant(reinterpret_cast<const simt::u32*>(a.weights + weight_at(a.in, token, k)));
    float* y = a.y + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.in) + k;
    simt::store(y, simt::float_of(pair << 16));
    if (k + 1 < a.in) simt::store(y + 1, simt::float_of(pair & 0xffff0000u));
  }
};

struct RoundRowsKernel {
  static constexpr const char* kName = "round_rows";
  static constexpr int kThreads = kRowThreads;
  RoundRows a;

  SPECLAB_DEVICE void operator()() const {
    const int k = 8 * (simt::block_x() * kThreads + simt::thread_index()), row = simt::block_y();
    if (k >= tiles_of(a.in, kTileIn) * kTileIn) return;
    const float* x = a.x + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.x_stride);
    simt::store16(a.activations + activation_at(a.rows, row, k),
                  Piece::read(x, k, a.in, on_16_bytes(x, 0)).rounded());
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const PackWeights& a, const Visit& visit) {
  if (a.first % kTileOut != 0 || (a.count % kTileOut != 0 && a.first + a.count != a.out))
    fail_arguments("pack_weights", "the rows must be whole tiles of 16, except at the end of the matrix");
  const long long pieces = static_cast<long long>(tiles_of(a.count, kTileOut)) * tiles_of(a.in, kTileIn) *
                           PackWeightsKernel::kPieces;
  visit(PackWeightsKernel{a},
        LaunchShape{.grid_x = static_cast<int>((pieces + kRowThreads - 1) / kRowThreads),
                    .threads = kRowThreads});
}
template <typename Visit>
void with_kernel(const Gather& a, const Visit& visit) {
  visit(GatherKernel{a},
        LaunchShape{.grid_x = tiles_of(a.in, 2 * kRowThreads), .grid_y = a.rows, .threads = kRowThreads});
}
template <typename Visit>
void with_kernel(const RoundRows& a, const Visit& visit) {
  visit(RoundRowsKernel{a},
        LaunchShape{.grid_x = tiles_of(a.in, 8 * kRowThreads), .grid_y = a.rows, .threads = kRowThreads});
}

}  // namespace speclab::cuda
