#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/backend/cpu/kernels.h"
#include "core/base/bf16.h"

// Attention of class `f32` and the others over the cache of one sequence. A key is a lane of the scores and a
// head dimension a lane of the values, so that every sum is one chain over head dimensions or positions,
// ascending, and neither the vector width nor the number of rows nor the slots that hold the keys enter the
// bits.

namespace speclab::cpu {

/// Keys per block of the key cache.
inline constexpr int kKeyBlock = 16;

/// Where a number stands in the cache of one head. Floats: keys [slots/16][head_dim][16], values
/// [slots][head_dim]. bf16, in words of two numbers that one instruction multiplies: keys
/// [slots/16][head_dim/2][16][2], values [slots/2][head_dim][2].
template <typename Kv>
constexpr std::size_t key_index(int slot, int d, int head_dim) {
  const std::size_t block =
      static_cast<std::size_t>(slot / kKeyBlock) * kKeyBlock * static_cast<std::size_t>(head_dim);
  if constexpr (sizeof(Kv) == 2)
    return block + static_cast<std::size_t>((d / 2 * kKeyBlock + slot % kKeyBlock) * 2 + d % 2);
  else return block + static_cast<std::size_t>(d * kKeyBlock + slot % kKeyBlock);
}
template <typename Kv>
constexpr std::size_t value_index(int slot, int d, int head_dim) {
  const auto width = static_cast<std::size_t>(head_dim), row = static_cast<std::size_t>(slot);
  if constexpr (sizeof(Kv) == 2) return row / 2 * 2 * width + static_cast<std::size_t>(2 * d) + row % 2;
  else return row * width + static_cast<std::size_t>(d);
}

/// One head's view of the cache of a sequence; an even head_dim, keys on a boundary of 64 bytes.
template <typename Kv>
struct HeadCache {
  const Kv* keys;
  const Kv* values;
  int head_dim;
};

/// Slots [begin, end), whole blocks of keys.
struct SlotRange {
  int begin, end;
};

/// Attention of up to query_block_rows() queries that read the same keys: rows and heads of one key/value
/// head. All see slots [0, committed) first and then their own path, so that key number i of a query is
/// always the key at position i. With a view of part of the cache `committed` is 0 and each path starts with
/// the listed slots: then "position" means rank in that path.
struct QueryBlock {
  static constexpr int kRows = 12;  ///< query_block_rows() at most
  int rows;
  const float* q[kRows];            ///< [head_dim]
  const std::int32_t* path[kRows];  ///< slots by position, from position `committed` on, ascending
  int path_length[kRows];
  float* out[kRows];  ///< [head_dim]
  int committed;
  int last_slot;  ///< largest slot that any of the rows sees
  float scale;
  float soft_cap = 0;     ///< 0: none
  int begin = 0;          ///< a multiple of kKeyBlock: no row sees a position before it
  int first[kRows] = {};  ///< first position that the row sees
  /// Slots that the rows see, ascending; empty: all from `begin` to `last_slot`.
  std::span<const SlotRange> ranges = {};
  int alike = 0;  ///< the first so many entries are the same in all paths

  int count(int r) const { return committed + path_length[r]; }
  int slot(int r, int position) const {
    return position < committed ? position : path[r][position - committed];
  }
  /// Positions [0, in_place(r)) of row r stand in the slots of the same number: what is committed, and a
  /// chain's rows.
  int in_place(int r) const;
  /// The ranges to score; `all`: memory for one of them.
  std::span<const SlotRange> scored(SlotRange& all) const {
    all = {begin, padded(last_slot + 1, kKeyBlock)};
    return ranges.empty() ? std::span<const SlotRange>(&all, 1) : ranges;
  }
};
/// 12 where there are 32 registers of 16 numbers, else 6; more queries share each key that is read.
int query_block_rows();

/// Numbers from the scores of one row to those of the next: whole blocks of keys, and two lines of a cache
/// more, because rows a power of two apart would share the few places that a cache has for them.
constexpr int score_stride(int last_slot) { return padded(last_slot + 1, kKeyBlock) + 32; }
/// Floats, on a boundary of 64 bytes, that attend() and attend_bf16() need.
constexpr std::size_t attention_scratch(int rows, int last_slot, int head_dim) {
  const auto stride = static_cast<std::size_t>(score_stride(last_slot));
  return static_cast<std::size_t>(rows) * (stride + stride / 2 + 2 * static_cast<std::size_t>(head_dim) + 16);
}
/// In float arithmetic: classes `f32` and `f32-kv16`, and `amx-bf16`.
void attend(const HeadCache<float>& cache, const QueryBlock& block, float* scratch);
void attend(const HeadCache<Bf16>& cache, const QueryBlock& block, float* scratch);

/// scores [slots] of row r, by slot -> the exponentials of the softmax [count(r)], by position, zero from
/// block.begin to first[r] and behind count(r) up to a whole block of keys. Returns their sum.
float attention_weights(const QueryBlock& block, int r, float* scores);

/// In bf16 products (class `avx512-bf16`): queries and the exponentials of the softmax are rounded to bf16;
/// VDPBF16PS multiplies pairs of head dimensions for the scores and of positions for the values, in the order
/// of bf16_units.h, so that an odd last position is multiplied with a zero beside it. Up to QueryBlock::kRows
/// queries.
void attend_bf16(bool emulated, const HeadCache<Bf16>& cache, const QueryBlock& block, float* scratch);

}  // namespace speclab::cpu
