#pragma once

#include <cstddef>

namespace speclab {

// Converts weights of the K types of GGUF to float.

/// Number of weights in a block of a K type.
inline constexpr int kSuperBlock = 256;

/// Each function converts one block to 256 floats. Each product and each difference of the formulas below
/// is rounded once, in the order of the formula (symbols: dequantize.h). Codes n are stored in strips of 32
/// or 64 weights. Several strips share the same bytes, and each strip uses different bits of them. The
/// layouts, in file order:
///
///   Q2_K  16 bytes (m << 4 | s), 64 bytes of 2-bit codes, half d, half d_min;
///         groups of 16: w = (d s) n - (d_min m)
///   Q3_K  32 bytes of third bits, 64 bytes of 2-bit codes, 16 scales of 6 bits in 12 bytes, half d;
///         groups of 16: w = (d (s - 32)) (n - 4)
///   Q4_K  half d, half d_min, 8 scales and 8 offsets of 6 bits in 12 bytes, 128 bytes of nibbles;
///         groups of 32: w = (d s) n - (d_min m)
///   Q5_K  as Q4_K, with 32 bytes of fifth bits before the nibbles
///   Q6_K  128 bytes of nibbles, 64 bytes of upper 2 bits, 16 signed scales of 8 bits, half d;
///         groups of 16: w = (d s) (n - 32)
void block_q2_k(const std::byte* from, float* to);
void block_q3_k(const std::byte* from, float* to);
void block_q4_k(const std::byte* from, float* to);
void block_q5_k(const std::byte* from, float* to);
void block_q6_k(const std::byte* from, float* to);

}  // namespace speclab
