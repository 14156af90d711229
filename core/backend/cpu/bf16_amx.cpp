#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/backend/cpu/bf16_slices.h"

namespace speclab::cpu {
namespace {

// Tiles 0 to 3 hold the sums of four panels (16 outputs each), [rows][16] float. Tile 4 holds inputs,
// [rows][32] bf16, and tile 5 weights, [16 pairs][16][2] bf16. If the number of pairs of inputs is not a
// multiple of 16, tiles 6 and 7 hold the remaining inputs and weights.
constexpr int kPanelsOfBlock = 4, kTileRows = 16, kTilePairs = 16;

/// The 64 bytes that the instruction LDTILECFG reads.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

TileShapes tile_shapes(int rows, int left_pairs) {
  TileShapes shapes;
  const auto set = [&](int tile, int of_rows, int bytes) {
    shapes.rows[tile] = static_cast<std::uint8_t>(of_rows);
    shapes.row_bytes[tile] = static_cast<std::uint16_t>(bytes);
  };
  for (int tile = 0; tile < kPanelsOfBlock; ++tile) set(tile, rows, 64);
  set(4, rows, 64);
  set(5, kTilePairs, 64);
  if (left_pairs > 0) {
    set(6, rows, 4 * left_pairs);
    set(7, left_pairs, 64);
  }
  return shapes;
}

// The instructions of AMX, in inline assembly. The intrinsics of gcc 12 do not tell the compiler that loading
// a tile reads memory, so the compiler could move a store past such a load.
struct HardwareTiles {
  static void configure(const TileShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes) : "memory"); }
  static void release() { asm volatile("tilerelease" ::: "memory"); }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  static void load(const void* from, long stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* to, long stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kSum, int kInputs, int kWeights>
  static void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kInputs), "i"(kWeights));
  }
};

/// Computes the instructions of HardwareTiles in C++, as Intel's manual (bf16_units.h) describes them.
struct EmulatedTiles {
  static inline thread_local TileShapes shapes;
  static inline thread_local std::uint8_t data[8][16][64];

  static void configure(const TileShapes& to) {
    shapes = to;
    std::memset(data, 0, sizeof(data));
  }
  static void release() { configure({}); }
  template <int kTile>
  static void zero() {
    std::memset(data[kTile], 0, sizeof(data[kTile]));
  }
  template <int kTile>
  static void load(const void* from, long stride) {
    zero<kTile>();
    for (int row = 0; row < shapes.rows[kTile]; ++row)
      std::memcpy(data[kTile][row], static_cast<const char*>(from) + row * stride, shapes.row_bytes[kTile]);
  }
  template <int kTile>
  static void store(void* to, long stride) {
    for (int row = 0; row < shapes.rows[kTile]; ++row)
      std::memcpy(static_cast<char*>(to) + row * stride, data[kTile][row], shapes.row_bytes[kTile]);
  }
  static float flush(float value) { return std::fabs(value) < FLT_MIN ? std::copysign(0.0f, value) : value; }
  // Converts the row_bytes / 2 numbers of a row of a tile to floats.
  static void widen(int tile, int row, float* to) {
    for (int i = 0; i < shapes.row_bytes[tile] / 2; ++i) {
      Bf16 bits;
      std::memcpy(&bits, data[tile][row] + 2 * i, sizeof(bits));
      to[i] = flush(bf16_to_float(bits));
    }
  }
  template <int kSum, int kInputs, int kWeights>
  [[gnu::target("avx2,fma")]] static void dot() {
    float weights[16][32];
    const int pairs = shapes.row_bytes[kInputs] / 4, columns = shapes.row_bytes[kSum] / 4;
    for (int k = 0; k < pairs; ++k) widen(kWeights, k, weights[k]);
    for (int row = 0; row < shapes.rows[kSum]; ++row) {
      float inputs[32], even[16] = {}, odd[16] = {}, sums[16];
      widen(kInputs, row, inputs);
      for (int k = 0; k < pairs; ++k) {
        for (int n = 0; n < columns; ++n) {
          even[n] = flush(__builtin_fmaf(inputs[2 * k], weights[k][2 * n], even[n]));
          odd[n] = flush(__builtin_fmaf(inputs[2 * k + 1], weights[k][2 * n + 1], odd[n]));
        }
      }
      std::memcpy(sums, data[kSum][row], sizeof(sums));
      for (int n = 0; n < columns; ++n) sums[n] = flush(sums[n] + flush(even[n] + odd[n]));
      std::memcpy(data[kSum][row], sums, sizeof(sums));
    }
  }
};

struct Block {
  const Bf16* panels;
  std::size_t panel_elements;
  int pairs;
  const Bf16* x;
  int x_stride;
};

// Computes the sums of the panels whose numbers are in the parameter pack kPanels (0, 1, ...), for the rows
// that the tiles are configured for. out: [panel][16 rows][16].
template <class Tiles, int... kPanels>
void tile_block(const Block& b, float* out, std::integer_sequence<int, kPanels...>) {
  const long x_bytes = 2L * b.x_stride;
  (Tiles::template zero<kPanels>(), ...);
  int pair = 0;
  for (; pair + kTilePairs <= b.pairs; pair += kTilePairs) {
    const Bf16* weights = b.panels + static_cast<std::size_t>(pair) * 2 * kPanel;
    Tiles::template load<4>(b.x + 2 * pair, x_bytes);
    ((Tiles::template load<5>(weights + kPanels * b.panel_elements, 64),
      Tiles::template dot<kPanels, 4, 5>()),
     ...);
  }
  if (pair < b.pairs) {
    const Bf16* weights = b.panels + static_cast<std::size_t>(pair) * 2 * kPanel;
    Tiles::template load<6>(b.x + 2 * pair, x_bytes);
    ((Tiles::template load<7>(weights + kPanels * b.panel_elements, 64),
      Tiles::template dot<kPanels, 6, 7>()),
     ...);
  }
  (Tiles::template store<kPanels>(out + kPanels * kTileRows * kPanel, 64), ...);
}

template <class Tiles>
void tile_slice(const Bf16Slice& s) {
  const int pairs = (s.in + 1) / 2, stride = bf16_row_length(s.in);
  const std::size_t elements = packed_panel_elements(s.in);
  const int blocks = (s.n + kTileRows - 1) / kTileRows;
  for (int block = 0; block < blocks; ++block) {
    const int row = block * s.n / blocks, rows = (block + 1) * s.n / blocks - row;
    Tiles::configure(tile_shapes(rows, pairs % kTilePairs));
    for (int j = 0; j < s.outputs; j += kPanelsOfBlock * kPanel) {
      alignas(64) float sums[kPanelsOfBlock * kTileRows * kPanel];
      const Block b{s.panels + elements * static_cast<std::size_t>(j / kPanel), elements, pairs,
                    s.x + static_cast<std::size_t>(row) * stride, stride};
      const int panels = std::min(kPanelsOfBlock, padded(s.outputs - j, kPanel) / kPanel);
      switch (panels) {
        case 1: tile_block<Tiles>(b, sums, std::integer_sequence<int, 0>{}); break;
        case 2: tile_block<Tiles>(b, sums, std::integer_sequence<int, 0, 1>{}); break;
        case 3: tile_block<Tiles>(b, sums, std::integer_sequence<int, 0, 1, 2>{}); break;
        default: tile_block<Tiles>(b, sums, std::integer_sequence<int, 0, 1, 2, 3>{}); break;
      }
      for (int panel = 0; panel < panels; ++panel) {
        const int at = j + panel * kPanel;
        for (int r = 0; r < rows; ++r) {
          put_sums(sums + (panel * kTileRows + r) * kPanel, std::min(kPanel, s.outputs - at),
                   s.y + static_cast<std::size_t>(row + r) * s.y_stride + at, s.accumulate);
        }
      }
    }
  }
  Tiles::release();
}

}  // namespace

void amx_slice(const Bf16Slice& slice) { tile_slice<HardwareTiles>(slice); }

double amx_rounds(std::int64_t rounds) {
  HardwareTiles::configure(tile_shapes(kTileRows, 0));
  HardwareTiles::zero<4>();
  HardwareTiles::zero<5>();
  // The loop that bf16_unit_rounds() runs to measure the peak speed. One instruction occupies the AMX unit
  // for sixteen cycles. So AMX runs the loop only rounds / 16 times.
  const std::int64_t turns = (rounds + 15) / 16;
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    HardwareTiles::dot<0, 4, 5>();
    HardwareTiles::dot<1, 4, 5>();
    HardwareTiles::dot<2, 4, 5>();
    HardwareTiles::dot<3, 4, 5>();
  }
  HardwareTiles::release();
  return static_cast<double>(turns) * 4 * 2 * kTileRows * 16 * 2 * kTilePairs;
}
void amx_slice_emulated(const Bf16Slice& slice) { tile_slice<EmulatedTiles>(slice); }

}  // namespace speclab::cpu
