#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/bf16.h"

namespace speclab {

/// The formats of weights in files. The Q types and IQ4_NL are those of GGUF: each row is divided into
/// blocks. The following six types have blocks of 32 weights. "half" is a 16-bit float, w is a weight, and n
/// is the integer that is stored for it.
///   Q4_0: half d, 16 bytes of nibbles (low nibbles are weights 0..15, high ones 16..31); w = d (n - 8)
///   Q4_1: half d, half m, nibbles;                                                      w = d n + m
///   Q5_0: half d, 32 fifth bits (bit i of weight i), nibbles;                           w = d (n - 16)
///   Q5_1: half d, half m, fifth bits, nibbles;                                          w = d n + m
///   Q8_0: half d, 32 signed bytes;                                                      w = d n
///   IQ4_NL: half d, nibbles that select one of 16 levels;                               w = d level[n]
/// The K types have blocks of 256 weights in groups of 16 or 32. Each group has a scale s (and an offset m)
/// of 4, 6 or 8 bits: w = (d s) n - (d_min m), or w = (d s) n after a constant is subtracted from n and
/// perhaps from s (dequantize_k.h). All formats are little-endian.
enum class TensorType : std::uint8_t {
  kF32,
  kF16,
  kBf16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kIq4Nl,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kI32,
};

struct TensorTypeInfo {
  std::string_view name;  ///< the name in GGUF and safetensors: "BF16", "Q4_1"
  int block;              ///< weights in a block; 1 for plain types
  int block_bytes;
};
const TensorTypeInfo& tensor_type_info(TensorType type);

/// All types of weights, for errors: "F32, F16, ... or Q6_K".
std::string weight_type_names();

/// Converts an IEEE half, given as its bit pattern. The result is exact.
float half_to_float(std::uint16_t bits);

/// Converts `count` weights, a multiple of the block, to float. Each product and sum is rounded once, in the
/// order above. `from` need not be aligned. I32 is not allowed, because it is no weight type.
void dequantize(TensorType type, const std::byte* from, std::int64_t count, float* to);

/// Like dequantize(), but the results are rounded to bf16 (nearest even). BF16 is copied.
void dequantize_to_bf16(TensorType type, const std::byte* from, std::int64_t count, Bf16* to);

}  // namespace speclab
