#include "core/backend/cpu/kernels.h"

#include <algorithm>

// Class f32 needs fused multiply-add, so no code is built for instruction sets without it. The exception is
// the instruction set that the compiler uses for the whole program: Highway always builds for it.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/kernels.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "core/backend/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace speclab::cpu {
namespace HWY_NAMESPACE {
namespace {

// --- linear -----------------------------------------------------------------------------------------------

// The weights to prefetch while a register block (one call of micro()) works: `step` bytes per pair of
// inputs, from address `from` on. Without prefetching, the reading of weights stalls whenever the inputs of
// the rows leave the first-level cache. On a Zen 4 with AVX2, three to five rows then took 20 to 50 % more
// time in a loop of this kernel alone.
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

// Number of panels of a register block. A panel has 16 outputs. The sums of a row fill two vectors: with 8
// lanes these are the sums of one panel, with 16 lanes the sums of two. Each panel is a stream of weights of
// its own. With 8 lanes one stream is fastest: with two or four, products of one and two rows took 10 % more
// time (Zen 4, AVX2). This was not measured with 16 lanes.
constexpr int kPanelsAtOnce = kLanes >= 16 ? 2 : 1;

// The inputs whose products a register block adds to its sums.
struct Inputs {
  const Bf16* w;      // weights of the first of these inputs, in the first panel
  std::size_t panel;  // distance between panels, in pairs of weights
  int pairs;          // number of pairs of inputs
  bool first;         // true: the sums start at 0; false: they go on
};

// sums[row][panel] (+)= W[panel] x[row], in the order of the inputs; rows of sums are `stride` apart. x:
// interleaved inputs of the rows: inputs 0 and 1 of row 0, of row 1, ..., then inputs 2 and 3 of row 0, ...
template <int kRows, int kPanels>
HWY_NOINLINE void micro(const Inputs& inputs, const float* HWY_RESTRICT x, float* HWY_RESTRICT sums,
                        int stride, Ahead ahead) {
  constexpr int kParts = kPanel / kLanes, kVectors = kPanels * kParts;
  // AVX2 has 16 vector registers, which hold the sums, the weights, an input and, if there is room, the
  // mask of the upper 16 bits (`upper`).
  constexpr bool kMaskFits = kLanes >= 16 || kRows * kVectors < 12;
  V sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = inputs.first ? hn::Zero(f) : hn::Load(f, sums + r * stride + v * kLanes);
  }
  const auto* HWY_RESTRICT words = reinterpret_cast<const std::uint32_t*>(inputs.w);
  const std::size_t panel = inputs.panel;
  const auto upper = hn::Set(u, 0xffff0000u);
  for (int pair = 0; pair < inputs.pairs; ++pair) {
    for (int p = 0; p < kPanels; ++p) __builtin_prefetch(ahead.from + p * panel * sizeof(std::uint32_t));
    ahead.from += ahead.step;
    // A vector holds the weights of both inputs of a pair. Those of the first input are used first.
    for (int odd = 0; odd < 2; ++odd) {
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

// The register block of a group of rows: one panel, or kPanelsAtOnce panels if `whole` is true.
template <int kRows>
void block_of_group(const Inputs& inputs, bool whole, const float* x, float* sums, int stride, Ahead ahead) {
  if (whole) micro<kRows, kPanelsAtOnce>(inputs, x, sums, stride, ahead);
  else micro<kRows, 1>(inputs, x, sums, stride, ahead);
}

void block(int rows, const Inputs& inputs, bool whole, const float* x, float* sums, int stride, Ahead ahead) {
  switch (rows) {
    case 1: block_of_group<1>(inputs, whole, x, sums, stride, ahead); break;
    case 2: block_of_group<2>(inputs, whole, x, sums, stride, ahead); break;
    case 3: block_of_group<3>(inputs, whole, x, sums, stride, ahead); break;
    case 4: block_of_group<4>(inputs, whole, x, sums, stride, ahead); break;
    case 5: block_of_group<5>(inputs, whole, x, sums, stride, ahead); break;
    default: block_of_group<6>(inputs, whole, x, sums, stride, ahead); break;
  }
}

// Pairs of inputs that several groups use one after the other, before they go on to the next pairs. The
// weights of these pairs (6 KiB a panel) then stay in the first-level cache, and the next ones arrive
// meanwhile. With whole panels, and without the prefetching of the thread's next slice, a forward of 8 rows
// took 1.16 times as long (SmolLM2-135M, EPYC with AVX2, two threads); 16 rows took about the same time.
constexpr int kPairsAtOnce = 96;

// Computes the groups [first, end) of a slice of up to kSlicePanels panels. The sums go to the rows of y only
// after the last panel of the slice. Writing the 64 bytes of each panel to every row of y right after the
// panel made products of four and five rows about 10 % slower (Zen 4, AVX2, weights from memory).
constexpr int kSlicePanels = 4, kSliceGroups = 10;
void slice_of_groups(const Bf16* panels, int in, int outputs, const float* x, const RowGroups& groups,
                     int first, int end, const Outputs& to, const Bf16* next) {
  constexpr int kStride = kSlicePanels * kPanel;
  HWY_ALIGN float sums[kSliceGroups * kGroupRows * kStride];
  const std::size_t panel_bytes = packed_panel_elements(in) * sizeof(Bf16);
  const int count = padded(outputs, kPanel) / kPanel, begin = groups.begin(first),
            rows = groups.begin(end) - begin;
  const int turns = end - first, pairs = in / 2;
  for (int p = 0; p < count; p += kPanelsAtOnce) {
    const Bf16* w = panels + packed_panel_elements(in) * static_cast<std::size_t>(p);
    const auto* bytes = reinterpret_cast<const char*>(w);
    const bool whole = p + kPanelsAtOnce <= count;
    // A single group prefetches just ahead of itself. If there are several, each prefetches its share of the
    // weights that this thread reads after the current pairs.
    const auto* after =
        p + kPanelsAtOnce < count ? bytes + panel_bytes * kPanelsAtOnce : reinterpret_cast<const char*>(next);
    const int step = turns == 1 ? pairs : kPairsAtOnce;
    for (int from = 0; from < pairs; from += step) {
      const int some = std::min(step, pairs - from);
      const Inputs inputs{w + static_cast<std::size_t>(from) * 2 * kPanel, packed_panel_elements(in) / 2,
                          some, from == 0};
      const char* coming = from + some < pairs ? bytes + static_cast<std::size_t>(from + some) * 64 : after;
      for (int g = first; g < end; ++g) {
        const Ahead ahead =
            turns == 1
                ? Ahead{bytes + kPrefetchBytes, 64}
                : Ahead{coming + static_cast<std::size_t>(some) * 64 * (g - first) / turns, 64 / turns};
        block(groups.size(g), inputs, whole,
              x + static_cast<std::size_t>(groups.begin(g)) * in +
                  static_cast<std::size_t>(from) * 2 * groups.size(g),
              sums + (groups.begin(g) - begin) * kStride + p * kPanel, kStride, ahead);
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

void LinearSlice(const Bf16* panels, int in, int outputs, const float* x, int n, float* y, int y_stride,
                 bool accumulate, const Bf16* next) {
  const RowGroups groups(n);
  const int parts = (groups.count + kSliceGroups - 1) / kSliceGroups;
  for (int j = 0; j < outputs; j += kSlicePanels * kPanel) {
    const Bf16* w = panels + packed_panel_elements(in) * static_cast<std::size_t>(j / kPanel);
    const Bf16* after =
        j + kSlicePanels * kPanel < outputs ? w + packed_panel_elements(in) * kSlicePanels : next;
    for (int part = 0; part < parts; ++part) {
      slice_of_groups(w, in, std::min(kSlicePanels * kPanel, outputs - j), x, groups,
                      part * groups.count / parts, (part + 1) * groups.count / parts,
                      {y + j, y_stride, accumulate}, part + 1 < parts ? w : after);
    }
  }
}

// --- rows -------------------------------------------------------------------------------------------------

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
  if (i < n) {  // the last numbers go through a padded vector: the same bits as in a whole vector
    HWY_ALIGN float g[16] = {}, w[16] = {};
    std::copy(gate + i, gate + n, g);
    std::copy(up + i, up + n, w);
    const V value = hn::Load(f, g);
    const V silu = hn::Div(value, hn::Add(one, hn::Exp(f, hn::Neg(value))));
    hn::Store(hn::Mul(silu, hn::Load(f, w)), f, g);
    std::copy(g, g + (n - i), out + i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace speclab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace speclab::cpu {

HWY_EXPORT(LinearSlice);
HWY_EXPORT(RmsNormRow);
HWY_EXPORT(SiluMultiplyRow);

void linear_slice(const Bf16* panels, int in, int outputs, const float* x, int n, float* y, int y_stride,
                  bool accumulate, const Bf16* next) {
  HWY_DYNAMIC_DISPATCH(LinearSlice)(panels, in, outputs, x, n, y, y_stride, accumulate, next);
}
void rms_norm_row(const float* x, const float* weight, float eps, int d, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormRow)(x, weight, eps, d, out);
}
void silu_multiply_row(const float* gate, const float* up, int n, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluMultiplyRow)(gate, up, n, out);
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
