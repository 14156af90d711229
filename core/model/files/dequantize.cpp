#include "core/model/files/dequantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/base/error.h"
#include "core/model/files/dequantize_k.h"

namespace speclab {
namespace {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

constexpr int kBlock = 32;

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float load_half(const std::byte* from) { return half_to_float(load<std::uint16_t>(from)); }

/// Unpacks 32 nibbles: the low halves of 16 bytes, then the high halves.
void nibbles(const std::byte* from, int* to) {
  for (int i = 0; i < kBlock / 2; ++i) {
    const int byte = static_cast<int>(from[i]);
    to[i] = byte & 15;
    to[i + kBlock / 2] = byte >> 4;
  }
}

void add_fifth_bits(std::uint32_t bits, int* to) {
  for (int i = 0; i < kBlock; ++i) to[i] |= static_cast<int>((bits >> i) & 1u) << 4;
}

void block_q4_0(const std::byte* from, float* to) {
  const float scale = load_half(from);
  int weight[kBlock];
  nibbles(from + 2, weight);
  for (int i = 0; i < kBlock; ++i) to[i] = scale * static_cast<float>(weight[i] - 8);
}

void block_q4_1(const std::byte* from, float* to) {
  const float scale = load_half(from), least = load_half(from + 2);
  int weight[kBlock];
  nibbles(from + 4, weight);
  for (int i = 0; i < kBlock; ++i) to[i] = scale * static_cast<float>(weight[i]) + least;
}

void block_q5_0(const std::byte* from, float* to) {
  const float scale = load_half(from);
  int weight[kBlock];
  nibbles(from + 6, weight);
  add_fifth_bits(load<std::uint32_t>(from + 2), weight);
  for (int i = 0; i < kBlock; ++i) to[i] = scale * static_cast<float>(weight[i] - 16);
}

void block_q5_1(const std::byte* from, float* to) {
  const float scale = load_half(from), least = load_half(from + 2);
  int weight[kBlock];
  nibbles(from + 8, weight);
  add_fifth_bits(load<std::uint32_t>(from + 4), weight);
  for (int i = 0; i < kBlock; ++i) to[i] = scale * static_cast<float>(weight[i]) + least;
}

void block_q8_0(const std::byte* from, float* to) {
  const float scale = load_half(from);
  for (int i = 0; i < kBlock; ++i) to[i] = scale * static_cast<float>(static_cast<std::int8_t>(from[2 + i]));
}

void block_iq4_nl(const std::byte* from, float* to) {
  // The levels are closer together around zero, where most weights are.
  constexpr std::array<float, 16> kLevels{-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
  const float scale = load_half(from);
  int level[kBlock];
  nibbles(from + 2, level);
  for (int i = 0; i < kBlock; ++i) to[i] = scale * kLevels[static_cast<std::size_t>(level[i])];
}

template <void (*Block)(const std::byte*, float*)>
void each_block(const TensorTypeInfo& type, const std::byte* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count / type.block; ++i)
    Block(from + i * type.block_bytes, to + i * type.block);
}

constexpr std::array<TensorTypeInfo, 15> kTypes{{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q4_0", kBlock, 18},
    {"Q4_1", kBlock, 20},
    {"Q5_0", kBlock, 22},
    {"Q5_1", kBlock, 24},
    {"Q8_0", kBlock, 34},
    {"IQ4_NL", kBlock, 18},
    {"Q2_K", kSuperBlock, 84},
    {"Q3_K", kSuperBlock, 110},
    {"Q4_K", kSuperBlock, 144},
    {"Q5_K", kSuperBlock, 176},
    {"Q6_K", kSuperBlock, 210},
    {"I32", 1, 4},
}};

}  // namespace

const TensorTypeInfo& tensor_type_info(TensorType type) { return kTypes.at(static_cast<std::size_t>(type)); }

std::string weight_type_names() {
  static_assert(static_cast<std::size_t>(TensorType::kI32) + 1 == kTypes.size());
  std::string names;
  for (std::size_t i = 0; i + 1 < kTypes.size(); ++i) {
    names += i == 0 ? "" : i + 2 == kTypes.size() ? " or " : ", ";
    names += kTypes[i].name;
  }
  return names;
}

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t exponent = (bits >> 10) & 31u, mantissa = bits & 1023u;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24f) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

void dequantize(TensorType type, const std::byte* from, std::int64_t count, float* to) {
  const TensorTypeInfo& info = tensor_type_info(type);
  SPECLAB_CHECK(count >= 0 && count % info.block == 0, "{} weights of type {}", count, info.name);
  switch (type) {
    case TensorType::kF32:
      if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case TensorType::kF16:
      for (std::int64_t i = 0; i < count; ++i) to[i] = load_half(from + 2 * i);
      return;
    case TensorType::kBf16:
      for (std::int64_t i = 0; i < count; ++i) to[i] = bf16_to_float(load<Bf16>(from + 2 * i));
      return;
    case TensorType::kQ4_0: return each_block<block_q4_0>(info, from, count, to);
    case TensorType::kQ4_1: return each_block<block_q4_1>(info, from, count, to);
    case TensorType::kQ5_0: return each_block<block_q5_0>(info, from, count, to);
    case TensorType::kQ5_1: return each_block<block_q5_1>(info, from, count, to);
    case TensorType::kQ8_0: return each_block<block_q8_0>(info, from, count, to);
    case TensorType::kIq4Nl: return each_block<block_iq4_nl>(info, from, count, to);
    case TensorType::kQ2K: return each_block<block_q2_k>(info, from, count, to);
    case TensorType::kQ3K: return each_block<block_q3_k>(info, from, count, to);
    case TensorType::kQ4K: return each_block<block_q4_k>(info, from, count, to);
    case TensorType::kQ5K: return each_block<block_q5_k>(info, from, count, to);
    case TensorType::kQ6K: return each_block<block_q6_k>(info, from, count, to);
    case TensorType::kI32: break;
  }
  SPECLAB_CHECK(false, "type {} holds no weights", info.name);
}

void dequantize_to_bf16(TensorType type, const std::byte* from, std::int64_t count, Bf16* to) {
  if (type == TensorType::kBf16) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(Bf16));
    return;
  }
  const TensorTypeInfo& info = tensor_type_info(type);
  SPECLAB_CHECK(count >= 0 && count % info.block == 0, "{} weights of type {}", count, info.name);
  constexpr std::int64_t kPiece = 512;  // a multiple of every block size; fits into the first-level cache
  static_assert(kPiece % kSuperBlock == 0);
  float piece[kPiece];
  for (std::int64_t at = 0; at < count; at += kPiece) {
    const std::int64_t size = std::min(kPiece, count - at);
    dequantize(type, from + at / info.block * info.block_bytes, size, piece);
    for (std::int64_t i = 0; i < size; ++i) to[at + i] = float_to_bf16(piece[i]);
  }
}

}  // namespace speclab
