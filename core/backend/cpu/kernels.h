#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/bf16.h"

// The arithmetic of class `f32` (and of `f32-kv16`, which differs only in the type of the KV cache): float
// activations, bf16 weights, float sums. The kernels are written once, with the vector library Highway. The
// compiler makes versions for AVX2 and for AVX-512, and one of them is chosen at run time. In a matrix
// product, a lane of a vector is one output, so every sum is one chain of fused multiply-adds in a fixed
// order. A norm adds 16 partial sums in a fixed order. The bits depend neither on the vector width nor on the
// number of rows. Attention is in attention.h.

namespace speclab::cpu {

/// Outputs per panel of a packed matrix. In a panel, the weights of one pair of inputs fill one cache line:
/// 16 x 2 bf16 numbers, 64 bytes.
inline constexpr int kPanel = 16;

inline constexpr int padded(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }
/// Packed layout: [ceil(out/16)][ceil(in/2)][16][2] bf16, padded with zeros. A panel is read from its first
/// byte to its last.
inline constexpr std::size_t packed_panel_elements(int in) {
  return static_cast<std::size_t>((in + 1) / 2) * kPanel * 2;
}

/// Largest number of rows of a register block. The sums of all rows of a block are in registers at the same
/// time.
inline constexpr int kGroupRows = 6;
/// Divides n rows into as few groups of at most `most` rows as possible. The groups have about equal size,
/// because blocks of 4 to 6 rows are fastest. Activations are interleaved within groups, [group][in/2][rows
/// of the group][2], so that a block reads them in order.
struct RowGroups {
  explicit constexpr RowGroups(int n, int most = kGroupRows)
      : count((n + most - 1) / most), least(n / count), larger(n % count) {}
  constexpr int begin(int group) const { return group * least + (group < larger ? group : larger); }
  constexpr int size(int group) const { return least + (group < larger ? 1 : 0); }
  int count;   ///< number of groups
  int least;   ///< rows of a group
  int larger;  ///< the first `larger` groups have one row more
};

/// y[row, j] (+)= sum_k W[j, k] x[row, k] for j in [0, outputs). Adds to y if `accumulate` is true, otherwise
/// replaces y. `panels` points at the panel of output 0, and y at the column of output 0. x: n rows of even
/// length `in`, interleaved within RowGroups(n). `next`: weights that this thread probably reads next. They
/// are prefetched; any address is allowed.
void linear_slice(const Bf16* panels, int in, int outputs, const float* x, int n, float* y, int y_stride,
                  bool accumulate, const Bf16* next);

void rms_norm_row(const float* x, const float* weight, float eps, int d, float* out);
/// out = silu(gate) * up
void silu_multiply_row(const float* gate, const float* up, int n, float* out);

/// True if this CPU has vectors with fused multiply-add (AVX2 or better), which class f32 needs.
bool kernels_supported();
/// The instruction set that is used: "AVX2", "AVX3" (Highway's name of AVX-512), ... It is only for
/// information: all instruction sets give the same bits.
const char* kernel_target();
/// true: uses AVX2 even if the CPU has AVX-512. false: uses the best instruction set of the CPU again.
void force_avx2(bool on);

}  // namespace speclab::cpu
