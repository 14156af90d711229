#pragma once

#include <optional>
#include <string_view>

#include "core/backend/cpu/kernels.h"

// Matrix products of classes `avx512-bf16` and `amx-bf16`: activations are rounded to bf16, weights are bf16,
// and special instructions add the products in float. (Attention is in attention.h.) They read the packed
// layout of class f32 unchanged: a pair of inputs of sixteen outputs is one vector of VDPBF16PS, and sixteen
// pairs are one B tile of TDPBF16PS. Both flush denormal numbers to zero and round to nearest even, whatever
// the processor's state (Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2).
// The order of a sum is:
// - AVX-512: pairs in ascending order, the second product of a pair first, each fused with the sum so far.
// - AMX: for 32 inputs, the even and the odd products are summed separately as fused chains; then their sum
//   is added to the result.
//
// Neither uses other rows or outputs, so the bits of a row do not depend on the number of rows. The
// emulations follow this order. On Zen 5, VDPBF16PS has the bits of its emulation. AMX has not been run yet,
// because no machine with it was available.

namespace speclab::cpu {

enum class Bf16Unit { kAvx512, kAmx };

constexpr std::string_view name_of(Bf16Unit unit) {
  return unit == Bf16Unit::kAvx512 ? "avx512-bf16" : "amx-bf16";
}

/// True if this processor has the instructions and the system permits them. The first call requests the AMX
/// state.
bool supported(Bf16Unit unit);
/// The unit that "auto" chooses, if any: AVX-512 on AMD processors, where VDPBF16PS is as fast as a fused
/// multiply-add and does twice the operations. On Intel processors it is slower. AMX is not chosen until it
/// has been run once.
std::optional<Bf16Unit> preferred_bf16_unit();

/// Groups of n rows of activations. AVX-512 reads groups of interleaved rows,
/// [group][bf16_row_length(in)/2][rows of the group][2]; AMX loads tiles of single rows.
constexpr RowGroups bf16_row_groups(Bf16Unit unit, int n) {
  if (unit == Bf16Unit::kAmx) return RowGroups(n, 1);
  return n <= 16 ? RowGroups(n, 16)
                 : RowGroups(n, 12);  // as many rows as fit in registers, with one panel or two
}
/// Length of a row in memory: a multiple of 32 inputs.
inline constexpr int bf16_row_length(int in) { return padded(in, 32); }
/// Rounds one group of rows, x [rows, in], and pads it with zeros.
void round_group(const float* x, int rows, int in, Bf16* out);

/// y[row, j] (+)= sum_k W[j, k] x[row, k] for j in [0, outputs). Like linear_slice() in kernels.h, except for
/// x.
struct Bf16Slice {
  static constexpr int kOutputs = 64;  ///< most `outputs`
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
/// `emulated`: computes every instruction in plain C++, slowly, on any machine.
void bf16_linear_slice(Bf16Unit unit, bool emulated, const Bf16Slice& slice);

/// Runs the unit's instruction on registers alone, `rounds` times on each of many independent sums. Returns
/// the number of operations, 2 per multiply-add, for measure_peak_flops(). Needs supported(unit).
double bf16_unit_rounds(Bf16Unit unit, std::int64_t rounds);

}  // namespace speclab::cpu
