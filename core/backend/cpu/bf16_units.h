#pragma once

#include <optional>
#include <string_view>

#include "core/backend/cpu/kernels.h"

// The matrices of classes `avx512-bf16` and `amx-bf16`: activations rounded to bf16 before every one, bf16
// weights, products accumulated in float by instructions made for it (attention: attention.h). They read the
// packed layout of class f32 as it is: a pair of inputs of sixteen outputs is one vector of VDPBF16PS, and
// sixteen pairs are one B tile of TDPBF16PS. Both flush denormal numbers to zero and round to nearest even
// whatever the state of the processor says (Intel, "Intel 64 and IA-32 Architectures Software Developer's
// Manual", volume 2). Order of one sum:
// - AVX-512: pairs ascending, of each the second product first, every one fused with the sum so far;
// - AMX: of 32 inputs the sums of the even and of the odd products, each a fused chain; their sum is added to
// the result. Neither knows of other rows or outputs, so the bits of a row do not depend on how many there
// are. The emulations follow this order. VDPBF16PS has been run (Zen 5: the bits of its emulation); AMX not
// yet, no machine with it was at hand.

namespace speclab::cpu {

enum class Bf16Unit { kAvx512, kAmx };

constexpr std::string_view name_of(Bf16Unit unit) {
  return unit == Bf16Unit::kAvx512 ? "avx512-bf16" : "amx-bf16";
}

/// This processor has the instructions, and the system lets us use them (asks for the AMX state on the first
/// call).
bool supported(Bf16Unit unit);
/// The unit that "auto" takes, if any: AVX-512 on AMD's processors, which carry out VDPBF16PS at the rate of
/// a fused multiply-add (twice its operations); on Intel's it is slower than that. AMX has to be run once
/// first.
std::optional<Bf16Unit> preferred_bf16_unit();

/// n rows of activations as a unit reads them, interleaved by groups, [group][bf16_row_length(in)/2][rows of
/// the group][2]: AVX-512 reads the inputs of a group in order, AMX loads tiles of single rows.
constexpr RowGroups bf16_row_groups(Bf16Unit unit, int n) {
  if (unit == Bf16Unit::kAmx) return RowGroups(n, 1);
  return n <= 16 ? RowGroups(n, 16)
                 : RowGroups(n, 12);  // as many rows as have registers, by one panel or by two
}
/// A row in memory ends at a multiple of 32 inputs.
inline constexpr int bf16_row_length(int in) { return padded(in, 32); }
/// Rounds one group, x [rows, in], zeros at the ends.
void round_group(const float* x, int rows, int in, Bf16* out);

/// y[row, j] (+)= sum_k W[j, k] x[row, k] for j in [0, outputs), as linear_slice() in kernels.h but for x.
struct Bf16Slice {
  static constexpr int kOutputs = 64;  ///< at most
  const Bf16* panels;
  int in, outputs;
  const Bf16* x;
  int n;
  float* y;
  int y_stride;
  bool accumulate;
  const void* next;  ///< what this thread is likely to read after the panels; only ever fetched ahead, so any
                     ///< address is right
};
/// `emulated`: every instruction in plain C++, on any machine, slowly.
void bf16_linear_slice(Bf16Unit unit, bool emulated, const Bf16Slice& slice);

/// Does the unit's instruction on registers alone, `rounds` times on each of many independent sums, and
/// returns the number of operations, 2 per multiply-add (for measure_peak_flops()); needs supported(unit).
double bf16_unit_rounds(Bf16Unit unit, std::int64_t rounds);

}  // namespace speclab::cpu
