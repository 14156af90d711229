#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/cuda/kernels/simt.h"

// Where the matrix unit's operands lie in memory. Both are cut into pieces of 16 bytes, one per lane, in the
// order in which lanes take them, so that a warp loads 512 contiguous bytes straight into the registers of
// mma.m16n8k16.
//
// The sum over k does not care which k of a block of 32 a lane calls its own as long as both operands agree.
// Lane 4 g + t takes k = 8 t .. 8 t + 7 of the block: the first four in its first step of 16, the others in
// the second. So eight neighbours of an activation row are one piece, and a producer writes them with one
// store.

namespace speclab::cuda {

inline constexpr int kTileOut = 16;  ///< weights: outputs of a tile
inline constexpr int kTileRows = 8;  ///< activations: rows of a tile
inline constexpr int kTileIn = 32;   ///< inputs of a tile of either, two steps of 16
inline constexpr int kPiece = 8;     ///< bf16 of 16 bytes

SPECLAB_BOTH constexpr int tiles_of(int count, int tile) { return (count + tile - 1) / tile; }

/// Tiles that n rows take: 1, 2, 3, 4, 6, 8, 12 or 16 of eight, the sizes that the linear kernel is compiled
/// for; multiples of 8 beyond 128 rows, which it does not take.
SPECLAB_BOTH constexpr int row_tiles(int rows) {
  const int tiles = tiles_of(rows, kTileRows), unit = tiles <= 4 ? 1 : tiles <= 8 ? 2 : tiles <= 16 ? 4 : 8;
  return tiles_of(tiles, unit) * unit;
}

/// Activations of n rows, bf16: [in/32][row_tiles(n)][32 lanes][8], inputs padded with zeros, rows with
/// anything.
SPECLAB_BOTH constexpr std::size_t activation_elements(int rows, int in) {
  return static_cast<std::size_t>(tiles_of(in, kTileIn)) * static_cast<std::size_t>(row_tiles(rows)) *
         (kTileRows * kTileIn);
}
/// Element (row, k) of them; k % 8 is its place in the piece.
SPECLAB_BOTH constexpr std::size_t activation_at(int rows, int row, int k) {
  const std::size_t tile = static_cast<std::size_t>(k / kTileIn) * static_cast<std::size_t>(row_tiles(rows)) +
                           static_cast<std::size_t>(row / kTileRows);
  return tile * (kTileRows * kTileIn) +
         static_cast<std::size_t>((row % kTileRows * 4 + k % kTileIn / kPiece) * kPiece + k % kPiece);
}

/// A weight matrix [out, in], bf16: [out/16][in/32][2 steps][32 lanes][8], padded with zeros.
SPECLAB_BOTH constexpr std::size_t weight_elements(int out, int in) {
  return static_cast<std::size_t>(tiles_of(out, kTileOut)) * static_cast<std::size_t>(tiles_of(in, kTileIn)) *
         kTileOut * kTileIn;
}
/// Element (m, k) of it; k and k + 1 are neighbours for even k.
SPECLAB_BOTH constexpr std::size_t weight_at(int in, int m, int k) {
  const std::size_t tile =
      static_cast<std::size_t>(m / kTileOut) * static_cast<std::size_t>(tiles_of(in, kTileIn)) +
      static_cast<std::size_t>(k / kTileIn);
  const int lane = m % 8 * 4 + k % kTileIn / kPiece, step = k % kPiece / 4, j = k % 4;
  return tile * (kTileOut * kTileIn) +
         static_cast<std::size_t>((step * 32 + lane) * kPiece + j / 2 * 4 + m % kTileOut / 8 * 2 + j % 2);
}

}  // namespace speclab::cuda
