#include "core/model/files/dequantize_k.h"

#include <cstdint>
#include <cstring>

#include "core/model/files/dequantize.h"

namespace speclab {
namespace {

float half_at(const std::byte* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return half_to_float(bits);
}

/// Divides a byte into fields of `bits` bits, the lowest first, and returns field `index`.
int field(std::byte byte, int index, int bits) {
  return static_cast<int>(byte) >> index * bits & ((1 << bits) - 1);
}

/// Returns code i of a block, each code having `bits` bits. A run of `bytes` bytes holds 8 / bits strips of
/// `bytes` consecutive codes: field f of each byte belongs to strip f. The next run holds the next strips.
template <int bytes, int bits>
int strip_code(const std::byte* from, int i) {
  constexpr int weights = bytes * (8 / bits);  // weights in one run of bytes
  return field(from[i / weights * bytes + i % bytes], i % weights / bytes, bits);
}

/// Unpacks the scales and offsets of Q4_K and Q5_K: 12 bytes in three rows of four. The low six bits of the
/// bytes in row 0 are scales 0..3; the low six bits in row 1 are offsets 0..3. Row 2 has the low four bits of
/// scales 4..7 (low nibbles) and of offsets 4..7 (high nibbles). The top two bits of the bytes in row 0 are
/// the upper two bits of scales 4..7; the top two bits in row 1 are the upper two bits of offsets 4..7.
void scales_and_offsets(const std::byte* from, int* scale, int* offset) {
  for (int i = 0; i < 4; ++i) {
    const int s = static_cast<int>(from[i]), m = static_cast<int>(from[4 + i]);
    const int both = static_cast<int>(from[8 + i]);
    scale[i] = s & 63;
    offset[i] = m & 63;
    scale[4 + i] = (both & 15) | (s >> 2 & 48);
    offset[4 + i] = both >> 4 | (m >> 2 & 48);
  }
}

template <typename Code>
void block_q4_or_q5_k(const std::byte* from, float* to, Code code) {
  const float d = half_at(from), d_min = half_at(from + 2);
  int scale[8], offset[8];
  scales_and_offsets(from + 4, scale, offset);
  for (int group = 0; group < 8; ++group) {
    const float step = d * static_cast<float>(scale[group]);
    const float least = d_min * static_cast<float>(offset[group]);
    for (int i = 32 * group; i < 32 * (group + 1); ++i) to[i] = step * static_cast<float>(code(i)) - least;
  }
}

}  // namespace

void block_q2_k(const std::byte* from, float* to) {
  const float d = half_at(from + 80), d_min = half_at(from + 82);
  for (int group = 0; group < 16; ++group) {
    const float step = d * static_cast<float>(field(from[group], 0, 4));
    const float least = d_min * static_cast<float>(field(from[group], 1, 4));
    for (int i = 16 * group; i < 16 * (group + 1); ++i)
      to[i] = step * static_cast<float>(strip_code<32, 2>(from + 16, i)) - least;
  }
}

void block_q3_k(const std::byte* from, float* to) {
  const std::byte* scales = from + 96;
  const float d = half_at(from + 108);
  for (int group = 0; group < 16; ++group) {
    // The low four bits of the scales are in 8 bytes, low halves of the bytes first. The upper two bits are
    // in the next 4 bytes, in strips of four scales.
    const int scale = field(scales[group % 8], group / 8, 4) | field(scales[8 + group % 4], group / 4, 2)
                                                                   << 4;
    const float step = d * static_cast<float>(scale - 32);
    for (int i = 16 * group; i < 16 * (group + 1); ++i) {
      const int code = strip_code<32, 2>(from + 32, i) | strip_code<32, 1>(from, i) << 2;
      to[i] = step * static_cast<float>(code - 4);
    }
  }
}

void block_q4_k(const std::byte* from, float* to) {
  block_q4_or_q5_k(from, to, [&](int i) { return strip_code<32, 4>(from + 16, i); });
}

void block_q5_k(const std::byte* from, float* to) {
  block_q4_or_q5_k(from, to, [&](int i) {
    return strip_code<32, 4>(from + 48, i) | strip_code<32, 1>(from + 16, i) << 4;
  });
}

void block_q6_k(const std::byte* from, float* to) {
  const float d = half_at(from + 208);
  for (int group = 0; group < 16; ++group) {
    const float step = d * static_cast<float>(static_cast<std::int8_t>(from[192 + group]));
    for (int i = 16 * group; i < 16 * (group + 1); ++i) {
      const int code = strip_code<64, 4>(from, i) | strip_code<32, 2>(from + 128, i) << 4;
      to[i] = step * static_cast<float>(code - 32);
    }
  }
}

}  // namespace speclab
