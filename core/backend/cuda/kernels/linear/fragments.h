#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/cuda/kernels/simt.h"

// The layout in memory of the matrix unit's operands. Both are cut into pieces of 16 bytes, one per lane, in
// the order of the lanes. So a warp loads 512 contiguous bytes straight into the registers of mma.m16n8k16.
//
// Within a block of 32 inputs, any assignment of inputs k to lanes gives the same sum, provided that both
// operands use it. Here lane 4 g + t takes k = 8 t .. 8 t + 7 of the block: the first four in the first step
// of 16, the others in the second. So eight neighbouring numbers of an activation row are one piece, which
// the kernel that produces them writes with one store.

namespace speclab::cuda {

inline constexpr int kTileOut = 16;  ///< weights: outputs per tile
inline constexpr int kTileRows = 8;  ///< activations: rows per tile
inline constexpr int kTileIn = 32;   ///< inputs per tile of either operand: two steps of 16
inline constexpr int kPiece = 8;     ///< bf16 numbers in 16 bytes

SPECLAB_BOTH constexpr int tiles_of(int count, int tile) { return (count + tile - 1) / tile; }

/// Row tiles for n rows: 1, 2, 3, 4, 6, 8, 12 or 16, the sizes that the linear kernel is compiled for. Beyond
/// 128 rows, which the linear kernel does not take, multiples of 8.
SPECLAB_BOTH constexpr int row_tiles(int rows) {
  const int tiles = tiles_of(rows, kTileRows), unit = tiles <= 4 ? 1 : tiles <= 8 ? 2 : tiles <= 16 ? 4 : 8;
  return tiles_of(tiles, unit) * unit;
}

/// Size of the activations of n rows: bf16 [in/32][row_tiles(n)][32 lanes][8]. Inputs are padded with zeros;
/// the contents of padding rows do not matter.
SPECLAB_BOTH constexpr std::size_t activation_elements(int rows, int in) {
  return static_cast<std::size_t>(tiles_of(in, kTileIn)) * static_cast<std::size_t>(row_tiles(rows)) *
         (kTileRows * kTileIn);
}
/// Index of element (row, k) of the activations; k % 8 is its place within the piece.
SPECLAB_BOTH constexpr std::size_t activation_at(int rows, int row, int k) {
  const std::size_t tile = static_cast<std::size_t>(k / kTileIn) * static_cast<std::size_t>(row_tiles(rows)) +
                           static_cast<std::size_t>(row / kTileRows);
  return tile * (kTileRows * kTileIn) +
         static_cast<std::size_t>((row % kTileRows * 4 + k % kTileIn / kPiece) * kPiece + k % kPiece);
}

/// Size of a weight matrix [out, in]: bf16 [out/16][in/32][2 steps][32 lanes][8], padded with zeros.
SPECLAB_BOTH constexpr std::size_t weight_elements(int out, int in) {
  return static_cast<std::size_t>(tiles_of(out, kTileOut)) * static_cast<std::size_t>(tiles_of(in, kTileIn)) *
         kTileOut * kTileIn;
}
/// Index of element (m, k) of a weight matrix; k and k + 1 are neighbours for even k.
SPECLAB_BOTH constexpr std::size_t weight_at(int in, int m, int k) {
  const std::size_t tile =
      static_cast<std::size_t>(m / kTileOut) * static_cast<std::size_t>(tiles_of(in, kTileIn)) +
      static_cast<std::size_t>(k / kTileIn);
  const int lane = m % 8 * 4 + k % kTileIn / kPiece, step = k % kPiece / 4, j = k % 4;
  return tile * (kTileOut * kTileIn) +
         static_cast<std::size_t>((step * 32 + lane) * kPiece + j / 2 * 4 + m % kTileOut / 8 * 2 + j % 2);
}

}  // namespace speclab::cuda
