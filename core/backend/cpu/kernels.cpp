#include "core/backend/cpu/kernels.h"

#include <algorithm>

// Without fused multiply-add the class does not exist; do not build targets that lack it (the baseline cannot be left out).
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/kernels.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace speclab::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of at most 16 lanes: 16 partial sums are the widest fixed reduction, and a panel is 16 outputs.
using F = hn::CappedTag<float, 16>;
using U = hn::RebindToUnsigned<F>;
using V = hn::Vec<F>;
constexpr F f;
constexpr U u;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(f));

// --- linear -----------------------------------------------------------------------------------------------------

// Weights to fetch while a register block works: `step` bytes per pair of inputs from `from` on. Left to the processor,
// the reading stops whenever the inputs of the rows leave the first-level cache: on a Zen 4 with AVX2 three to five rows
// then cost a fifth to a half more in a loop of this kernel alone.
struct Ahead {
  const char* from;
  int step;
};
constexpr int kPrefetchBytes = 4096;

struct Outputs {
  float* y;
  int stride;
  bool accumulate;
};

// Panels of a register block. A row takes two vectors either way, and no more: one forward stream is read fastest. With two
// or four streams one and two rows cost a tenth more (Zen 4, AVX2); not measured with 16 lanes.
constexpr int kPanelsAtOnce = kLanes >= 16 ? 2 : 1;

// sums[row][panel] = W[panel] x[row], k ascending; sums: rows `stride` apart. x: the rows' inputs, pairs interleaved.
template <int kRows, int kPanels>
HWY_NOINLINE void micro(const Bf16* HWY_RESTRICT w, int in, const float* HWY_RESTRICT x, float* HWY_RESTRICT sums, int stride, Ahead ahead) {
  constexpr int kParts = kPanel / kLanes, kVectors = kPanels * kParts;
  constexpr bool kMaskFits = kLanes >= 16 || kRows * kVectors < 12;  // 16 registers: sums, weights, an input and the mask
  V sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(f);
  }
  const auto* HWY_RESTRICT words = reinterpret_cast<const std::uint32_t*>(w);
  const std::size_t panel = packed_panel_elements(in) / 2;
  const auto upper = hn::Set(u, 0xffff0000u);
  for (int pair = 0; pair < in / 2; ++pair) {
    for (int p = 0; p < kPanels; ++p) __builtin_prefetch(ahead.from + p * panel * sizeof(std::uint32_t));
    ahead.from += ahead.step;
    for (int odd = 0; odd < 2; ++odd) {  // the weights of a pair are widened twice
      V weight[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        auto raw = hn::Load(u, words + v / kParts * panel + v % kParts * kLanes);
        if (odd == 0) raw = hn::ShiftLeft<16>(raw);
        else raw = kMaskFits ? hn::And(upper, raw) : hn::ShiftLeft<16>(hn::ShiftRight<16>(raw));
        weight[v] = hn::BitCast(f, raw);
      }
      for (int r = 0; r < kRows; ++r) {
        const V value = hn::Set(f, x[2 * r + odd]);
        for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(weight[v], value, sum[r][v]);
      }
    }
    words += kPanel;
    x += 2 * kRows;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], f, sums + r * stride + v * kLanes);
  }
}

// A register block: one panel, or as many as are taken at once, for a group of rows.
struct RegisterBlock {
  const Bf16* w;
  bool whole;  // kPanelsAtOnce panels
  int in;
  Ahead ahead;
};

template <int kRows>
void block_of_group(const RegisterBlock& b, const float* x, float* sums, int stride) {
  if (b.whole) micro<kRows, kPanelsAtOnce>(b.w, b.in, x, sums, stride, b.ahead);
  else micro<kRows, 1>(b.w, b.in, x, sums, stride, b.ahead);
}

// Groups first .. end of a slice of up to kSlicePanels panels. Sums go to their rows when the slice is done: with a line of
// 64 bytes into each row after every panel four and five rows cost about a tenth more (Zen 4, AVX2, weights from memory).
constexpr int kSlicePanels = 4, kSliceGroups = 10;
void slice_of_groups(const Bf16* panels, int in, int outputs, const float* x, const RowGroups& groups, int first, int end, const Outputs& to) {
  constexpr int kStride = kSlicePanels * kPanel;
  HWY_ALIGN float sums[kSliceGroups * kGroupRows * kStride];
  const std::size_t panel_bytes = packed_panel_elements(in) * sizeof(Bf16);
  const int count = padded(outputs, kPanel) / kPanel, begin = groups.begin(first), rows = groups.begin(end) - begin;
  for (int p = 0; p < count; p += kPanelsAtOnce) {
    const Bf16* w = panels + packed_panel_elements(in) * static_cast<std::size_t>(p);
    const auto* bytes = reinterpret_cast<const char*>(w);
    // The groups take turns at a block. A single one fetches just ahead of itself, several fetch the next block together.
    for (int g = first; g < end; ++g) {
      const int turns = end - first;
      const Ahead ahead = turns == 1 ? Ahead{bytes + kPrefetchBytes, 64}
                                     : Ahead{bytes + panel_bytes * kPanelsAtOnce + panel_bytes * static_cast<std::size_t>(g - first) / turns, 64 / turns};
      const RegisterBlock block{w, p + kPanelsAtOnce <= count, in, ahead};
      const float* inputs = x + static_cast<std::size_t>(groups.begin(g)) * in;
      float* out = sums + (groups.begin(g) - begin) * kStride + p * kPanel;
      switch (groups.size(g)) {
        case 1: block_of_group<1>(block, inputs, out, kStride); break;
        case 2: block_of_group<2>(block, inputs, out, kStride); break;
        case 3: block_of_group<3>(block, inputs, out, kStride); break;
        case 4: block_of_group<4>(block, inputs, out, kStride); break;
        case 5: block_of_group<5>(block, inputs, out, kStride); break;
        default: block_of_group<6>(block, inputs, out, kStride); break;
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    float* y = to.y + static_cast<std::size_t>(begin + r) * to.stride;
    const float* from = sums + r * kStride;
    if (to.accumulate) {
      for (int i = 0; i < outputs; ++i) y[i] += from[i];
    } else {
      std::copy(from, from + outputs, y);
    }
  }
}

void LinearSlice(const Bf16* panels, int in, int outputs, const float* x, int n, float* y, int y_stride, bool accumulate) {
  const RowGroups groups(n);
  const int parts = (groups.count + kSliceGroups - 1) / kSliceGroups;
  for (int j = 0; j < outputs; j += kSlicePanels * kPanel) {
    const Bf16* w = panels + packed_panel_elements(in) * static_cast<std::size_t>(j / kPanel);
    for (int part = 0; part < parts; ++part) {
      slice_of_groups(w, in, std::min(kSlicePanels * kPanel, outputs - j), x, groups, part * groups.count / parts,
                      (part + 1) * groups.count / parts, {y + j, y_stride, accumulate});
    }
  }
}

// --- rows -------------------------------------------------------------------------------------------------------

// Sum of 16 partial sums in a fixed order.
HWY_INLINE float reduce16(const float* partial) {
  float level[8];
  for (int i = 0; i < 8; ++i) level[i] = partial[i] + partial[i + 8];
  for (int i = 0; i < 4; ++i) level[i] += level[i + 4];
  return (level[0] + level[2]) + (level[1] + level[3]);
}

void RmsNormRow(const float* x, const float* weight, float eps, int d, float* out) {
  constexpr int kParts = 16 / kLanes;
  V sums[kParts];
  for (auto& s : sums) s = hn::Zero(f);
  int i = 0;
  for (; i + 16 <= d; i += 16) {
    for (int part = 0; part < kParts; ++part) {
      const V value = hn::LoadU(f, x + i + part * kLanes);
      sums[part] = hn::MulAdd(value, value, sums[part]);
    }
  }
  HWY_ALIGN float partial[16];
  for (int part = 0; part < kParts; ++part) hn::Store(sums[part], f, partial + part * kLanes);
  for (int j = 0; i < d; ++i, ++j) partial[j] = __builtin_fmaf(x[i], x[i], partial[j]);
  const float scale = 1.0f / __builtin_sqrtf(reduce16(partial) / static_cast<float>(d) + eps);
  for (i = 0; i < d; ++i) out[i] = x[i] * scale * weight[i];
}

void SiluMultiplyRow(const float* gate, const float* up, int n, float* out) {
  const V one = hn::Set(f, 1.0f);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V g = hn::LoadU(f, gate + i);
    const V silu = hn::Div(g, hn::Add(one, hn::Exp(f, hn::Neg(g))));
    hn::StoreU(hn::Mul(silu, hn::LoadU(f, up + i)), f, out + i);
  }
  if (i < n) {  // a padded vector, so that the tail has the same bits as the body
    HWY_ALIGN float g[16] = {}, w[16] = {};
    std::copy(gate + i, gate + n, g);
    std::copy(up + i, up + n, w);
    const V value = hn::Load(f, g);
    const V silu = hn::Div(value, hn::Add(one, hn::Exp(f, hn::Neg(value))));
    hn::Store(hn::Mul(silu, hn::Load(f, w)), f, g);
    std::copy(g, g + (n - i), out + i);
  }
}

// --- attention --------------------------------------------------------------------------------------------------

HWY_INLINE V load_kv(const float* p) { return hn::LoadU(f, p); }
HWY_INLINE V load_kv(const Bf16* p) {
  const hn::Rebind<std::uint16_t, F> half;
  return hn::BitCast(f, hn::ShiftLeft<16>(hn::PromoteTo(u, hn::LoadU(half, p))));
}

// scores[row][slot] = q[row] . key[slot] for the 16 slots of a block: lane = key, one chain over the head dimensions.
template <int kRows, typename Kv>
HWY_INLINE void score_block(const Kv* HWY_RESTRICT keys, int head_dim, const float* HWY_RESTRICT q, float* HWY_RESTRICT scores, int stride) {
  constexpr int kParts = kKeyBlock / kLanes;
  V sum[kRows][kParts];
  for (int r = 0; r < kRows; ++r) {
    for (int part = 0; part < kParts; ++part) sum[r][part] = hn::Zero(f);
  }
  for (int d = 0; d < head_dim; ++d) {
    V key[kParts];
    for (int part = 0; part < kParts; ++part) key[part] = load_kv(keys + d * kKeyBlock + part * kLanes);
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const V value = hn::Set(f, q[d * kRows + r]);
      HWY_UNROLL(16)
      for (int part = 0; part < kParts; ++part) sum[r][part] = hn::MulAdd(key[part], value, sum[r][part]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int part = 0; part < kParts; ++part) hn::StoreU(sum[r][part], f, scores + r * stride + part * kLanes);
  }
}

// Turns scores[begin, count) into exponentials, zero before `first`, and returns their sum: partial sum i takes the
// positions i mod 16, and zeros leave it as it is, so that `begin`, which the rows of a block share, does not enter it.
HWY_INLINE float softmax_weights(float* scores, int begin, int first, int count, float scale) {
  constexpr float kUnseen = -1e30f;  // exp() of it is an exact zero
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

// scores[begin, count) become cap * tanh(scale * score / cap); `scores` has room for whole blocks.
HWY_INLINE void cap_scores(float* scores, int begin, int count, float scale, float cap) {
  const V v_cap = hn::Set(f, cap), v_scale = hn::Set(f, scale / cap);
  for (int i = count; i < padded(count, kKeyBlock); ++i) scores[i] = 0;
  for (int i = begin; i < count; i += kLanes) hn::StoreU(hn::Mul(v_cap, hn::Tanh(f, hn::Mul(hn::LoadU(f, scores + i), v_scale))), f, scores + i);
}

// out[row][d .. d + width) += sum over the committed slots [begin, end) of weight * value, ascending.
template <int kRows, int kVectors, typename Kv>
HWY_INLINE void mix_committed(const Kv* HWY_RESTRICT values, int head_dim, int d, int begin, int end, float* const* out,
                              const float* HWY_RESTRICT weights, int stride) {
  V sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::LoadU(f, out[r] + d + v * kLanes);
  }
  for (int slot = begin; slot < end; ++slot) {
    const Kv* value = values + static_cast<std::size_t>(slot) * head_dim + d;
    V x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = load_kv(value + v * kLanes);
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const V weight = hn::Set(f, weights[r * stride + slot]);
      HWY_UNROLL(16)
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x[v], weight, sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], f, out[r] + d + v * kLanes);
  }
}

// out[d .. d + kLanes) += the same over one query's own path.
template <typename Kv>
HWY_INLINE void mix_path(const Kv* HWY_RESTRICT values, int head_dim, int d, const QueryBlock& block, int r, const float* weights) {
  V sum = hn::LoadU(f, block.out[r] + d);
  for (int i = std::max(0, block.begin - block.committed); i < block.path_length[r]; ++i) {
    const Kv* value = values + static_cast<std::size_t>(block.path[r][i]) * head_dim + d;
    sum = hn::MulAdd(load_kv(value), hn::Set(f, weights[block.committed + i]), sum);
  }
  hn::StoreU(sum, f, block.out[r] + d);
}

template <int kRows, typename Kv>
void attend_rows(const HeadCache<Kv>& cache, const QueryBlock& block, float* scratch) {
  const int stride = padded(block.last_slot + 1, kKeyBlock);
  float* const q = scratch + kRows * stride;  // [head_dim][kRows]
  for (int d = 0; d < cache.head_dim; ++d) {
    for (int r = 0; r < kRows; ++r) q[d * kRows + r] = block.q[r][d];
  }
  for (int slot = block.begin; slot <= block.last_slot; slot += kKeyBlock) {
    score_block<kRows>(cache.keys + static_cast<std::size_t>(slot) * cache.head_dim, cache.head_dim, q, scratch + slot, stride);
  }
  float total[kRows];
  for (int r = 0; r < kRows; ++r) {
    float* scores = scratch + r * stride;
    // Slot order to position order; a path's slots never precede their positions and ascend, so in place is safe.
    for (int i = std::max(0, block.begin - block.committed); i < block.path_length[r]; ++i) {
      scores[block.committed + i] = scores[block.path[r][i]];
    }
    const int count = block.committed + block.path_length[r];
    if (block.soft_cap > 0) cap_scores(scores, block.begin, count, block.scale, block.soft_cap);
    total[r] = softmax_weights(scores, block.begin, block.first[r], count, block.soft_cap > 0 ? 1.0f : block.scale);
  }
  for (int r = 0; r < kRows; ++r) std::fill_n(block.out[r], cache.head_dim, 0.0f);
  const int whole = cache.head_dim / kLanes * kLanes;
  constexpr int kVectors = kLanes >= 16 ? (kRows <= 6 ? 4 : 2) : kRows <= 1 ? 8 : kRows <= 3 ? 4 : 2;
  constexpr int kSlots = 64;  // their values stay in the first-level cache while the vectors of a head take turns
  for (int slot = block.begin; slot < block.committed; slot += kSlots) {
    const int end = std::min(slot + kSlots, block.committed);
    int d = 0;
    for (; d + kVectors * kLanes <= whole; d += kVectors * kLanes)
      mix_committed<kRows, kVectors>(cache.values, cache.head_dim, d, slot, end, block.out, scratch, stride);
    for (; d < whole; d += kLanes) mix_committed<kRows, 1>(cache.values, cache.head_dim, d, slot, end, block.out, scratch, stride);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int d = 0; d < whole; d += kLanes) mix_path(cache.values, cache.head_dim, d, block, r, scratch + r * stride);
    for (int i = whole; i < cache.head_dim; ++i) {  // head dimensions that fill no vector
      float sum = 0;
      for (int key = block.begin; key < block.committed + block.path_length[r]; ++key) {
        const int slot = key < block.committed ? key : block.path[r][key - block.committed];
        const Kv raw = cache.values[static_cast<std::size_t>(slot) * cache.head_dim + i];
        float value;
        if constexpr (sizeof(Kv) == 2) value = bf16_to_float(raw);
        else value = raw;
        sum = __builtin_fmaf(value, scratch[r * stride + key], sum);
      }
      block.out[r][i] = sum;
    }
    const float inverse = 1.0f / total[r];
    for (int i = 0; i < cache.head_dim; ++i) block.out[r][i] *= inverse;
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

void AttendF32(const HeadCache<float>& cache, const QueryBlock& block, float* scratch) { attend_any(cache, block, scratch); }
void AttendBf16(const HeadCache<Bf16>& cache, const QueryBlock& block, float* scratch) { attend_any(cache, block, scratch); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace speclab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace speclab::cpu {

HWY_EXPORT(LinearSlice);
HWY_EXPORT(RmsNormRow);
HWY_EXPORT(SiluMultiplyRow);
HWY_EXPORT(QueryBlockRows);
HWY_EXPORT(AttendF32);
HWY_EXPORT(AttendBf16);

void linear_slice(const Bf16* panels, int in, int outputs, const float* x, int n, float* y, int y_stride, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(LinearSlice)(panels, in, outputs, x, n, y, y_stride, accumulate);
}
void rms_norm_row(const float* x, const float* weight, float eps, int d, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormRow)(x, weight, eps, d, out);
}
void silu_multiply_row(const float* gate, const float* up, int n, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluMultiplyRow)(gate, up, n, out);
}
int query_block_rows() { return HWY_DYNAMIC_DISPATCH(QueryBlockRows)(); }
void attend(const HeadCache<float>& cache, const QueryBlock& block, float* scratch) {
  HWY_DYNAMIC_DISPATCH(AttendF32)(cache, block, scratch);
}
void attend(const HeadCache<Bf16>& cache, const QueryBlock& block, float* scratch) {
  HWY_DYNAMIC_DISPATCH(AttendBf16)(cache, block, scratch);
}

namespace {
constexpr std::int64_t kFusedTargets = HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL;
}

bool kernels_supported() { return (hwy::SupportedTargets() & kFusedTargets) != 0; }

const char* kernel_target() {
  const std::int64_t have = hwy::SupportedTargets() & kFusedTargets;
  return have == 0 ? "none" : hwy::TargetName(have & ~(have - 1));
}

void force_avx2(bool on) {
  hwy::SetSupportedTargetsForTest(0);
  if (on) hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~(HWY_AVX3 | HWY_AVX3_DL));
}

}  // namespace speclab::cpu
#endif
