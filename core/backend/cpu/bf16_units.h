#pragma once

#include <string_view>

#include "core/backend/cpu/kernels.h"

// The arithmetic of classes `avx512-bf16` and `amx-bf16`: activations rounded to bf16 before every matrix, bf16 weights,
// products accumulated in float by instructions made for it. They read the packed layout of class f32 as it is: a pair of
// inputs of sixteen outputs is one vector of VDPBF16PS, and sixteen pairs are one B tile of TDPBF16PS. Both flush
// denormal numbers to zero and round to nearest even whatever the state of the processor says (Intel, "Intel 64 and
// IA-32 Architectures Software Developer's Manual", volume 2). Order of one sum:
// - AVX-512: pairs ascending, of each the second product first, every one fused with the sum so far;
// - AMX: of 32 inputs the sums of the even and of the odd products, each a fused chain; their sum is added to the result.
// Neither knows of other rows or outputs, so the bits of a row do not depend on how many there are. The emulations follow
// this order; the real instructions have not been run yet (no machine with them was at hand), so "auto" never takes them.

namespace speclab::cpu {

enum class Bf16Unit { kAvx512, kAmx };

constexpr std::string_view name_of(Bf16Unit unit) { return unit == Bf16Unit::kAvx512 ? "avx512-bf16" : "amx-bf16"; }

/// This processor has the instructions, and the system lets us use them (asks for the AMX state on the first call).
bool supported(Bf16Unit unit);

/// Rows of activations in memory end at a multiple of 32 inputs.
inline constexpr int bf16_row_length(int in) { return padded(in, 32); }
/// Rounds x [n, in] to bf16, [n, bf16_row_length(in)], zeros at the ends.
void round_rows(const float* x, int n, int in, Bf16* out);

/// y[row, j] (+)= sum_k W[j, k] x[row, k] for j in [0, outputs), as linear_slice() in kernels.h but for x, which is rows of
/// bf16_row_length(in). `emulated`: every instruction in plain C++, on any machine, slowly.
void bf16_linear_slice(Bf16Unit unit, bool emulated, const Bf16* panels, int in, int outputs, const Bf16* x, int n, float* y,
                       int y_stride, bool accumulate);

}  // namespace speclab::cpu
