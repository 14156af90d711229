#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/cuda/kernels/simt.h"

// The layout in memory of weights and activations, the two operands of the GPU's matrix unit. Each operand is
// a sequence of pieces of 16 bytes. 32 consecutive pieces belong to the 32 lanes of a warp, in the order of
// the lanes. So a warp loads 512 contiguous bytes straight into the registers of mma.m16n8k16.
//
// A tile has 32 inputs k, which the matrix unit adds in two steps of 16. The inputs of a tile may be assigned
// to lanes in any way that is the same for both operands. Here lane 4 g + t (t = 0 .. 3) takes the inputs 8 t
// to 8 t + 7 of the tile: four in the first step and four in the second. So eight neighbouring numbers of an
// activation row form one piece, and a kernel writes them with one store.

namespace speclab::cuda {

inline constexpr int kTileOut = 16;  ///< weights: outputs per tile
inline constexpr int kTileRows = 8;  ///< activations: rows per tile
inline constexpr int kTileIn = 32;   ///< inputs per tile of either operand: two steps of 16
inline constexpr int kPiece = 8;     ///< bf16 numbers in 16 bytes

SPECLAB_BOTH constexpr int tiles_of(int count, int tile) { return (count + tile - 1) / tile; }

/// Number of row tiles that hold n rows: 1, 2, 3, 4, 6, 8, 12 or 16. The linear kernel is compiled for these
/// numbers and takes at most 128 rows. For more rows the result is a multiple of 8.
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
