#pragma once

#include <cstdint>
#include <string_view>

#include "core/backend/cpu/kernels.h"

// Computes the matrix products of the numerics classes `avx512-bf16` and `amx-bf16`. Activations are rounded
// to bf16, weights are bf16, and special instructions (VDPBF16PS, TDPBF16PS) sum the products in float.
// Attention is in attention.h.
//
// Both classes read weights in the packed layout of class f32. In this layout, one vector of weights for
// VDPBF16PS holds the weights of a pair of inputs for sixteen outputs, and one tile of weights for TDPBF16PS
// holds sixteen such vectors. Both instructions flush denormal numbers to zero and round to nearest even; the
// processor's settings do not change this (Intel, "Intel 64 and IA-32 Architectures Software Developer's
// Manual", volume 2).
//
// The products of one output are added in this order:
// - AVX-512: the pairs in ascending order. Within a pair the second product comes first. Every product is
//   added to the sum so far by a fused multiply-add.
// - AMX: 32 inputs at a time. The products of the even inputs and those of the odd inputs are summed in two
//   separate chains of fused multiply-adds. The sum of the two chains is then added to the sum so far.
//
// The order does not depend on other rows or outputs, so the bits of a row do not depend on the number of
// rows. The emulations use the same order. On Zen 5, VDPBF16PS gives the same bits as its emulation. The AMX
// instructions have not been run yet, because no machine with AMX was available. Numerics class "auto" takes
// a unit only after a self-test (unit_choice.h).

namespace speclab::cpu {

enum class Bf16Unit { kAvx512, kAmx };

constexpr std::string_view name_of(Bf16Unit unit) {
  return unit == Bf16Unit::kAvx512 ? "avx512-bf16" : "amx-bf16";
}

/// True if this processor has the instructions and the system permits them. The first call asks
/// the system for permission to use AMX.
bool supported(Bf16Unit unit);

/// Divides n rows of activations into groups. AVX-512 reads the rows of a group interleaved:
/// [group][bf16_row_length(in)/2][rows of the group][2]. AMX loads its tiles from rows that are not
/// interleaved, so each group is one row.
constexpr RowGroups bf16_row_groups(Bf16Unit unit, int n) {
  if (unit == Bf16Unit::kAmx) return RowGroups(n, 1);
  // The registers can hold the sums of 16 rows for one panel (16 outputs), or of 12 rows for two panels.
  return n <= 16 ? RowGroups(n, 16) : RowGroups(n, 12);
}
/// Length of a row in memory: `in` rounded up to a multiple of 32.
inline constexpr int bf16_row_length(int in) { return padded(in, 32); }
/// Rounds one group of rows, x [rows, in], and pads it with zeros.
void round_group(const float* x, int rows, int in, Bf16* out);

/// The arguments of bf16_linear_slice(), which computes y[row, j] (+)= sum_k W[j, k] x[row, k] for j in
/// [0, outputs). They mean the same as the arguments of linear_slice() in kernels.h, except that `in` may be
/// odd and that x is bf16 in groups of bf16_row_groups().
struct Bf16Slice {
  static constexpr int kOutputs = 64;  ///< largest value of `outputs`
  const Bf16* panels;
  int in, outputs;
  const Bf16* x;
  int n;
  float* y;
  int y_stride;
  bool accumulate;
  const void* next;  ///< what this thread is likely to read next; it is only prefetched, so any address is
                     ///< allowed
};
/// If `emulated` is true, ordinary C++ code computes every instruction. This is slow and needs no bf16 unit.
void bf16_linear_slice(Bf16Unit unit, bool emulated, const Bf16Slice& slice);

/// For measure_peak_flops(): runs the unit's instruction in a loop on independent sums, with all operands in
/// registers. `rounds` sets the length of the loop: AVX-512 runs the loop `rounds` times, AMX a sixteenth as
/// often, because its instruction takes longer. Returns the number of operations that were done; a
/// multiply-add counts as 2. Needs supported(unit).
double bf16_unit_rounds(Bf16Unit unit, std::int64_t rounds);

}  // namespace speclab::cpu
