#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/backend/cpu/kernels.h"
#include "core/base/bf16.h"

// Attention over the cache of one sequence, for all numerics classes of the CPU. A vector lane holds one key
// while scores are computed, and one head dimension while values are summed. So every sum adds its products
// in the order of the head dimensions or of the positions. The bits depend neither on the vector width, nor
// on the number of rows, nor on the slots of the keys.

namespace speclab::cpu {

/// Keys per block of the key cache.
inline constexpr int kKeyBlock = 16;

/// Index of a number in the cache of one head. Float layout: keys [slots/16][head_dim][16], values
/// [slots][head_dim]. bf16 layout, in words of two numbers that one instruction multiplies: keys
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

/// The part of a sequence's cache that one head reads. head_dim is even; keys are aligned to 64 bytes.
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

/// Up to kRows queries that read the keys of the same key/value head. They may belong to several query heads
/// and to several rows. Each query sees slots [0, committed) first and then its own path, so key
/// number i of a query is always the key at position i. With a view of part of the cache (listed_keys.h),
/// `committed` is 0 and each path starts with the slots of the view. Then "position" means the index in the
/// path.
struct QueryBlock {
  static constexpr int kRows = 12;  ///< largest number of queries, see also query_block_rows()
  int rows;                         ///< number of queries; "row r" means query r of the block
  const float* q[kRows];            ///< [head_dim]
  const std::int32_t* path[kRows];  ///< slots of positions `committed`, committed + 1, ...
  int path_length[kRows];
  float* out[kRows];  ///< [head_dim]
  int committed;
  int last_slot;  ///< largest slot that any of the rows sees
  float scale;
  float soft_cap = 0;     ///< 0: none
  int begin = 0;          ///< a multiple of kKeyBlock; no row sees an earlier position
  int first[kRows] = {};  ///< first position that the row sees
  /// The slots to score, ascending. They contain all slots that the rows see. Empty: all from `begin` to
  /// `last_slot`.
  std::span<const SlotRange> ranges = {};
  int alike = 0;  ///< with a view: number of entries at the start of a path that are the same in all paths;
                  ///< 0 without a view

  int count(int r) const { return committed + path_length[r]; }
  int slot(int r, int position) const {
    return position < committed ? position : path[r][position - committed];
  }
  /// In row r, position i is in slot i for all i < in_place(r). These are the committed positions and the
  /// positions at the start of the path whose slots follow without a gap, as in a chain.
  int in_place(int r) const;
  /// Returns the ranges of slots to score. `all` is memory for the range that is returned if `ranges` is
  /// empty.
  std::span<const SlotRange> scored(SlotRange& all) const {
    all = {begin, padded(last_slot + 1, kKeyBlock)};
    return ranges.empty() ? std::span<const SlotRange>(&all, 1) : ranges;
  }
};
/// Returns the largest number of queries in a block for attend(): 12 on a CPU with 32 vector registers of 16
/// numbers, otherwise 6. The queries of a block share each key that is read.
int query_block_rows();

/// Distance in floats between the scores of one row and of the next: whole blocks of keys plus two cache
/// lines. With a power of two as distance, the rows would compete for the same few lines of the processor's
/// cache.
constexpr int score_stride(int last_slot) { return padded(last_slot + 1, kKeyBlock) + 32; }
/// Size in floats of the scratch of attend() and attend_bf16(). The scratch must be aligned to 64 bytes.
constexpr std::size_t attention_scratch(int rows, int last_slot, int head_dim) {
  const auto stride = static_cast<std::size_t>(score_stride(last_slot));
  return static_cast<std::size_t>(rows) * (stride + stride / 2 + 2 * static_cast<std::size_t>(head_dim) + 16);
}
/// Computes attention in float arithmetic, for the numerics classes `f32`, `f32-kv16` and `amx-bf16`.
void attend(const HeadCache<float>& cache, const QueryBlock& block, float* scratch);
void attend(const HeadCache<Bf16>& cache, const QueryBlock& block, float* scratch);

/// Replaces the scores of row r, ordered by slot, with the exponentials of the softmax, ordered by position.
/// The exponentials are zero from block.begin to first[r], and from count(r) to the end of the last block of
/// keys. Returns the sum of the exponentials.
float attention_weights(const QueryBlock& block, int r, float* scores);

/// Computes attention with bf16 products (class `avx512-bf16`). Queries and the exponentials of the softmax
/// are rounded to bf16. VDPBF16PS multiplies pairs of head dimensions for the scores and pairs of positions
/// for the values, in the order of bf16_units.h; an odd last position is paired with zero. `block` has up to
/// QueryBlock::kRows queries.
void attend_bf16(bool emulated, const HeadCache<Bf16>& cache, const QueryBlock& block, float* scratch);

}  // namespace speclab::cpu
