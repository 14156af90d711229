#include "core/backend/cpu/attention.h"

#include <algorithm>

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/attention.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "core/backend/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace speclab::cpu {
namespace HWY_NAMESPACE {
namespace {

// load_words() loads kLanes words of two bf16 numbers each. first_of() and second_of() convert the first or
// the second number of each word to float.
HWY_INLINE auto load_words(const Bf16* p) { return hn::LoadU(u, reinterpret_cast<const std::uint32_t*>(p)); }
template <class Words>
HWY_INLINE V first_of(Words words) {
  return hn::BitCast(f, hn::ShiftLeft<16>(words));
}
template <class Words>
HWY_INLINE V second_of(Words words) {
  return hn::BitCast(f, hn::And(words, hn::Set(u, 0xffff0000u)));
}

// --- scores -----------------------------------------------------------------------------------------------

// scores[row][slot] = q[row] . key[slot] for the 16 slots of a block; prefetches the next block. A lane is a
// key, and each sum adds its products in the order of the head dimensions.
template <int kRows, typename Kv>
HWY_INLINE void score_block(const Kv* HWY_RESTRICT keys, int head_dim, const float* HWY_RESTRICT q,
                            float* HWY_RESTRICT scores, int stride) {
  constexpr int kParts = kKeyBlock / kLanes;
  V sum[kRows][kParts];
  for (int r = 0; r < kRows; ++r) {
    for (int part = 0; part < kParts; ++part) sum[r][part] = hn::Zero(f);
  }
  const auto add = [&](const V* key, int d) HWY_ATTR {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const V value = hn::Set(f, q[d * kRows + r]);
      HWY_UNROLL(16)
      for (int part = 0; part < kParts; ++part) sum[r][part] = hn::MulAdd(key[part], value, sum[r][part]);
    }
  };
  for (int d = 0; d < head_dim; d += 2) {
    for (std::size_t line = 0; line < 2 * sizeof(Kv) * kKeyBlock; line += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(keys + (head_dim + d) * kKeyBlock) + line);
    V key[kParts];
    if constexpr (sizeof(Kv) == 2) {
      const Kv* pair = keys + d * kKeyBlock;
      for (int part = 0; part < kParts; ++part) key[part] = first_of(load_words(pair + 2 * part * kLanes));
      add(key, d);
      for (int part = 0; part < kParts; ++part) key[part] = second_of(load_words(pair + 2 * part * kLanes));
      add(key, d + 1);
    } else {
      for (int odd = 0; odd < 2; ++odd) {
        for (int part = 0; part < kParts; ++part)
          key[part] = hn::LoadU(f, keys + (d + odd) * kKeyBlock + part * kLanes);
        add(key, d + odd);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int part = 0; part < kParts; ++part)
      hn::StoreU(sum[r][part], f, scores + r * stride + part * kLanes);
  }
}

// --- softmax ----------------------------------------------------------------------------------------------

// Turns scores[begin, count) into exponentials, zero before `first`, and returns their sum. The sum is made
// of 16 partial sums; partial sum i adds the positions whose remainder modulo 16 is i. `begin` is the same
// for all rows of a block and may be below `first`. The sum does not depend on `begin`, because adding
// zeros changes nothing.
HWY_INLINE float softmax_weights(float* scores, int begin, int first, int count, float scale) {
  constexpr float kUnseen = -1e30f;  // its exp() is exactly zero
  const int full = padded(count, kKeyBlock);
  std::fill(scores + begin, scores + first, kUnseen);
  std::fill(scores + count, scores + full, kUnseen);
  V largest = hn::Set(f, kUnseen);
  for (int i = begin; i < full; i += kLanes) largest = hn::Max(largest, hn::LoadU(f, scores + i));
  constexpr int kParts = kKeyBlock / kLanes;
  V sums[kParts];
  for (auto& s : sums) s = hn::Zero(f);
  const V v_most = hn::MaxOfLanes(f, largest), v_scale = hn::Set(f, scale);
  for (int i = begin; i < full; i += kKeyBlock) {
    for (int part = 0; part < kParts; ++part) {
      float* at = scores + i + part * kLanes;
      const V value = hn::Exp(f, hn::Mul(hn::Sub(hn::LoadU(f, at), v_most), v_scale));
      hn::StoreU(value, f, at);
      sums[part] = hn::Add(sums[part], value);
    }
  }
  HWY_ALIGN float partial[16];
  for (int part = 0; part < kParts; ++part) hn::Store(sums[part], f, partial + part * kLanes);
  return reduce16(partial);
}

// Replaces scores[begin, count) by cap * tanh(scale * score / cap). `scores` has room for whole blocks.
HWY_INLINE void cap_scores(float* scores, int begin, int count, float scale, float cap) {
  const V v_cap = hn::Set(f, cap), v_scale = hn::Set(f, scale / cap);
  for (int i = count; i < padded(count, kKeyBlock); ++i) scores[i] = 0;
  for (int i = begin; i < count; i += kLanes)
    hn::StoreU(hn::Mul(v_cap, hn::Tanh(f, hn::Mul(hn::LoadU(f, scores + i), v_scale))), f, scores + i);
}

float AttentionWeights(const QueryBlock& block, int r, float* scores) {
  // Moves the scores from slot order to position order, in place. This is safe because the slots of a path
  // ascend and a slot is never below its position.
  const int count = block.count(r);
  for (int i = std::max(block.begin, block.in_place(r)); i < count; ++i) scores[i] = scores[block.slot(r, i)];
  if (block.soft_cap > 0) cap_scores(scores, block.begin, count, block.scale, block.soft_cap);
  return softmax_weights(scores, block.begin, block.first[r], count, block.soft_cap > 0 ? 1.0f : block.scale);
}

// --- values -----------------------------------------------------------------------------------------------

// Number of slots that are processed at once. Their values stay in the first-level cache while the head
// dimensions are processed, one group at a time. The values of the next slots are prefetched meanwhile.
constexpr int kSlots = 64;

// out[row][d .. d + kVectors * kLanes) += sum of weight * value over positions [begin, end), ascending.
// Position i is in slot i.
template <int kRows, int kVectors, typename Kv>
HWY_INLINE void mix_in_place(const Kv* HWY_RESTRICT values, int head_dim, int d, int begin, int end,
                             float* const* out, const float* HWY_RESTRICT weights, int stride) {
  V sum[kRows][kVectors], x[kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::LoadU(f, out[r] + d + v * kLanes);
  }
  const auto add = [&](int slot) HWY_ATTR {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const V weight = hn::Set(f, weights[r * stride + slot]);
      HWY_UNROLL(16)
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x[v], weight, sum[r][v]);
    }
  };
  for (int slot = begin; slot < end; slot += 2) {
    const Kv* value = values + value_index<Kv>(slot, d, head_dim);
    for (std::size_t line = 0; line < 4u * kVectors * kLanes; line += 64) {
      const char* next = reinterpret_cast<const char*>(value + kSlots * head_dim) + line;
      __builtin_prefetch(next);
      if constexpr (sizeof(Kv) == 4) __builtin_prefetch(next + 4 * head_dim);
    }
    for (int odd = 0; odd < 2 && slot + odd < end; ++odd) {
      for (int v = 0; v < kVectors; ++v) {
        if constexpr (sizeof(Kv) == 4) x[v] = hn::LoadU(f, value + odd * head_dim + v * kLanes);
        else if (odd == 0) x[v] = first_of(load_words(value + 2 * v * kLanes));
        else x[v] = second_of(load_words(value + 2 * v * kLanes));
      }
      add(slot + odd);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], f, out[r] + d + v * kLanes);
  }
}

// Like mix_in_place(), but the values may be in any slots: position i is in slot slots[i]. All rows use the
// same slots.
template <int kRows, int kVectors, typename Kv>
HWY_INLINE void mix_listed(const Kv* HWY_RESTRICT values, int head_dim, int d,
                           const std::int32_t* HWY_RESTRICT slots, int begin, int end, float* const* out,
                           const float* HWY_RESTRICT weights, int stride) {
  V sum[kRows][kVectors], x[kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::LoadU(f, out[r] + d + v * kLanes);
  }
  for (int i = begin; i < end; ++i) {
    const bool odd = sizeof(Kv) == 2 && slots[i] % 2 != 0;
    const Kv* value = values + value_index<Kv>(slots[i], d, head_dim) - odd;
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (sizeof(Kv) == 4) x[v] = hn::LoadU(f, value + v * kLanes);
      else if (odd) x[v] = second_of(load_words(value + 2 * v * kLanes));
      else x[v] = first_of(load_words(value + 2 * v * kLanes));
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const V weight = hn::Set(f, weights[r * stride + i]);
      HWY_UNROLL(16)
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x[v], weight, sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], f, out[r] + d + v * kLanes);
  }
}

// Adds the weighted values of one query to out[d .. d + kLanes). The sum goes over the query's positions from
// `begin` on, which may be in any slots.
template <typename Kv>
HWY_INLINE void mix_path(const Kv* HWY_RESTRICT values, int head_dim, int d, const QueryBlock& block, int r,
                         int begin, const float* weights) {
  V sum = hn::LoadU(f, block.out[r] + d);
  for (int i = begin; i < block.count(r); ++i) {
    const int slot = block.slot(r, i);
    const Kv* value = values + value_index<Kv>(slot, d, head_dim);
    V x;
    if constexpr (sizeof(Kv) == 4) x = hn::LoadU(f, value);
    else x = slot % 2 == 0 ? first_of(load_words(value)) : second_of(load_words(value - 1));
    sum = hn::MulAdd(x, hn::Set(f, weights[i]), sum);
  }
  hn::StoreU(sum, f, block.out[r] + d);
}

template <int kRows, typename Kv>
void attend_rows(const HeadCache<Kv>& cache, const QueryBlock& block, float* scratch) {
  const int stride = score_stride(block.last_slot), head_dim = cache.head_dim;
  float* const q = scratch + kRows * stride;  // [head_dim][kRows]
  for (int d = 0; d < head_dim; ++d) {
    for (int r = 0; r < kRows; ++r) q[d * kRows + r] = block.q[r][d];
  }
  SlotRange all;
  for (const SlotRange& range : block.scored(all)) {
    for (int slot = range.begin; slot < range.end; slot += kKeyBlock) {
      score_block<kRows>(cache.keys + static_cast<std::size_t>(slot) * head_dim, head_dim, q, scratch + slot,
                         stride);
    }
  }
  float total[kRows];
  int shared = block.count(0);  // for all queries, position i is in slot i for all i < shared
  for (int r = 0; r < kRows; ++r) {
    total[r] = AttentionWeights(block, r, scratch + r * stride);
    shared = std::min(shared, block.in_place(r));
  }
  shared = std::max(shared, block.begin);
  for (int r = 0; r < kRows; ++r) std::fill_n(block.out[r], head_dim, 0.0f);
  const int whole = head_dim / kLanes * kLanes;
  constexpr int kVectors = kLanes >= 16 ? (kRows <= 6 ? 4 : 2) : kRows <= 1 ? 8 : kRows <= 3 ? 4 : 2;
  for (int slot = block.begin; slot < shared; slot += kSlots) {
    const int end = std::min(slot + kSlots, shared);
    int d = 0;
    for (; d + kVectors * kLanes <= whole; d += kVectors * kLanes)
      mix_in_place<kRows, kVectors>(cache.values, head_dim, d, slot, end, block.out, scratch, stride);
    for (; d < whole; d += kLanes)
      mix_in_place<kRows, 1>(cache.values, head_dim, d, slot, end, block.out, scratch, stride);
  }
  for (int from = shared; from < block.alike; from += kSlots) {
    const int end = std::min(from + kSlots, block.alike);
    int d = 0;
    for (; d + kVectors * kLanes <= whole; d += kVectors * kLanes)
      mix_listed<kRows, kVectors>(cache.values, head_dim, d, block.path[0], from, end, block.out, scratch,
                                  stride);
    for (; d < whole; d += kLanes)
      mix_listed<kRows, 1>(cache.values, head_dim, d, block.path[0], from, end, block.out, scratch, stride);
  }
  shared = std::max(shared, block.alike);
  for (int r = 0; r < kRows; ++r) {
    for (int d = 0; d < whole; d += kLanes)
      mix_path(cache.values, head_dim, d, block, r, shared, scratch + r * stride);
    for (int i = whole; i < head_dim; ++i) {  // head dimensions that do not fill a vector
      float sum = 0;
      for (int key = block.begin; key < block.count(r); ++key) {
        const Kv raw = cache.values[value_index<Kv>(block.slot(r, key), i, head_dim)];
        float value;
        if constexpr (sizeof(Kv) == 2) value = bf16_to_float(raw);
        else value = raw;
        sum = __builtin_fmaf(value, scratch[r * stride + key], sum);
      }
      block.out[r][i] = sum;
    }
    const float inverse = 1.0f / total[r];
    for (int i = 0; i < head_dim; ++i) block.out[r][i] *= inverse;
  }
}

constexpr int kQueryRows = kLanes >= 16 ? 12 : 6;
int QueryBlockRows() { return kQueryRows; }

template <typename Kv>
HWY_INLINE void attend_any(const HeadCache<Kv>& cache, const QueryBlock& block, float* scratch) {
  if constexpr (kQueryRows == 12) {
    switch (block.rows) {
      case 7: return attend_rows<7>(cache, block, scratch);
      case 8: return attend_rows<8>(cache, block, scratch);
      case 9: return attend_rows<9>(cache, block, scratch);
      case 10: return attend_rows<10>(cache, block, scratch);
      case 11: return attend_rows<11>(cache, block, scratch);
      case 12: return attend_rows<12>(cache, block, scratch);
      default: break;
    }
  }
  switch (block.rows) {
    case 1: return attend_rows<1>(cache, block, scratch);
    case 2: return attend_rows<2>(cache, block, scratch);
    case 3: return attend_rows<3>(cache, block, scratch);
    case 4: return attend_rows<4>(cache, block, scratch);
    case 5: return attend_rows<5>(cache, block, scratch);
    default: return attend_rows<6>(cache, block, scratch);
  }
}

void AttendF32(const HeadCache<float>& cache, const QueryBlock& block, float* scratch) {
  attend_any(cache, block, scratch);
}
void AttendBf16(const HeadCache<Bf16>& cache, const QueryBlock& block, float* scratch) {
  attend_any(cache, block, scratch);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace speclab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace speclab::cpu {

HWY_EXPORT(QueryBlockRows);
HWY_EXPORT(AttentionWeights);
HWY_EXPORT(AttendF32);
HWY_EXPORT(AttendBf16);

int query_block_rows() { return HWY_DYNAMIC_DISPATCH(QueryBlockRows)(); }
float attention_weights(const QueryBlock& block, int r, float* scores) {
  return HWY_DYNAMIC_DISPATCH(AttentionWeights)(block, r, scores);
}
void attend(const HeadCache<float>& cache, const QueryBlock& block, float* scratch) {
  HWY_DYNAMIC_DISPATCH(AttendF32)(cache, block, scratch);
}
void attend(const HeadCache<Bf16>& cache, const QueryBlock& block, float* scratch) {
  HWY_DYNAMIC_DISPATCH(AttendBf16)(cache, block, scratch);
}

int QueryBlock::in_place(int r) const {
  // path[i] - i never decreases. So bisection finds the first i at which path[i] - i is not `committed`, or
  // the length of the path if there is no such i.
  int low = 0, high = path_length[r];
  while (low < high) {
    const int middle = (low + high) / 2;
    if (path[r][middle] == committed + middle) low = middle + 1;
    else high = middle;
  }
  return committed + low;
}

}  // namespace speclab::cpu
#endif
