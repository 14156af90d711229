#include "core/backend/cpu/row_operations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/row_operations.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "core/backend/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace speclab::cpu {
namespace HWY_NAMESPACE {
namespace {

// Computes out[i] = function(x[i], other[i]) in whole vectors. The last numbers of a row go through a padded
// vector. Their results have the same bits as in a whole vector.
template <typename Function>
HWY_INLINE void map_row(const float* x, const float* other, int n, float* out, const Function& function) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(function(hn::LoadU(f, x + i), other ? hn::LoadU(f, other + i) : hn::Set(f, 1.0f)), f, out + i);
  if (i >= n) return;
  HWY_ALIGN float a[16] = {}, b[16] = {};
  for (int j = 0; i + j < n; ++j) {
    a[j] = x[i + j];
    b[j] = other ? other[i + j] : 1.0f;
  }
  hn::Store(function(hn::Load(f, a), hn::Load(f, b)), f, a);
  for (int j = 0; i + j < n; ++j) out[i + j] = a[j];
}

// Adds up a row: add_to(value, sum) makes 16 partial sums, which are then added in a fixed order.
template <typename Function>
HWY_INLINE float sum_row(const float* x, int n, const Function& add_to) {
  constexpr int kParts = 16 / kLanes;
  V sums[kParts];
  for (auto& sum : sums) sum = hn::Zero(f);
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int part = 0; part < kParts; ++part)
      sums[part] = add_to(hn::LoadU(f, x + i + part * kLanes), sums[part]);
  }
  HWY_ALIGN float level[16];
  for (int part = 0; part < kParts; ++part) hn::Store(sums[part], f, level + part * kLanes);
  if (i < n) {  // lanes past the end leave their sums unchanged
    HWY_ALIGN float tail[16] = {}, after[16];
    for (int j = 0; i + j < n; ++j) tail[j] = x[i + j];
    for (int part = 0; part < kParts; ++part)
      hn::Store(add_to(hn::Load(f, tail + part * kLanes), sums[part]), f, after + part * kLanes);
    for (int j = 0; i + j < n; ++j) level[j] = after[j];
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) level[j] += level[j + width];
  }
  return level[0];
}

void LayerNormRow(const float* x, const float* weight, const float* bias, float eps, int d, float* out) {
  const float mean =
      sum_row(x, d, [](V value, V sum) { return hn::Add(sum, value); }) / static_cast<float>(d);
  const V v_mean = hn::Set(f, mean);
  const float squares = sum_row(x, d, [&](V value, V sum) {
    const V from_mean = hn::Sub(value, v_mean);
    return hn::MulAdd(from_mean, from_mean, sum);
  });
  const float scale = 1.0f / __builtin_sqrtf(squares / static_cast<float>(d) + eps);
  for (int i = 0; i < d; ++i) out[i] = __builtin_fmaf((x[i] - mean) * scale, weight[i], bias[i]);
}

void ActivateRow(Activation kind, const float* x, const float* up, int n, float* out) {
  const V one = hn::Set(f, 1.0f), most = hn::Set(f, 88.0f);  // exp() of a larger number overflows
  const auto sigmoid_times = [&](V v, V exponent) {
    return hn::Div(v, hn::Add(one, hn::Exp(f, hn::Min(exponent, most))));
  };
  switch (kind) {
    case Activation::kSilu:
      return map_row(x, up, n, out, [&](V v, V w) { return hn::Mul(sigmoid_times(v, hn::Neg(v)), w); });
    case Activation::kGeluTanh: {
      // 1/2 (1 + tanh(u)) is 1 / (1 + exp(-2u)). 1.5957691216 is 2 sqrt(2/pi).
      const V linear = hn::Set(f, -1.5957691216f), cubic = hn::Set(f, -1.5957691216f * 0.044715f);
      return map_row(x, up, n, out, [&](V v, V w) {
        const V exponent = hn::Mul(v, hn::MulAdd(hn::Mul(v, v), cubic, linear));
        return hn::Mul(sigmoid_times(v, exponent), w);
      });
    }
    case Activation::kRelu:
      return map_row(x, up, n, out, [](V v, V w) { return hn::Mul(hn::Max(v, hn::Zero(f)), w); });
    case Activation::kGelu:
      for (int i = 0; i < n; ++i)
        out[i] = 0.5f * x[i] * (1 + std::erf(x[i] * 0.70710678f)) * (up ? up[i] : 1.0f);
      return;
  }
}

void RoundRow(const float* x, int n, Bf16* out) {
  using U = hn::RebindToUnsigned<F>;
  constexpr U u;
  const hn::Rebind<Bf16, F> half;
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto bits = hn::BitCast(u, hn::LoadU(f, x + i));
    const auto upper = hn::ShiftRight<16>(bits);
    const auto rounded =
        hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(u, 0x7fffu)), hn::And(upper, hn::Set(u, 1u))));
    const auto is_nan = hn::Gt(hn::And(bits, hn::Set(u, 0x7fffffffu)), hn::Set(u, 0x7f800000u));
    hn::StoreU(hn::TruncateTo(half, hn::IfThenElse(is_nan, hn::Or(upper, hn::Set(u, 0x40u)), rounded)), half,
               out + i);
  }
  for (; i < n; ++i) out[i] = float_to_bf16(x[i]);
}

void SoftCapRow(float cap, int n, float* x) {
  const V v_cap = hn::Set(f, cap), inverse = hn::Set(f, 1 / cap);
  map_row(x, nullptr, n, x, [&](V v, V) { return hn::Mul(v_cap, hn::Tanh(f, hn::Mul(v, inverse))); });
}

void CopyNoting(const float* x, int x_stride, int rows, int width, float* out, int out_stride, float* largest,
                int largest_stride) {
  for (int row = 0; row < rows; ++row, x += x_stride, out += out_stride, largest += largest_stride) {
    V most = hn::Set(f, -std::numeric_limits<float>::infinity());
    int i = 0;
    for (; i + 4 * kLanes <= width; i += 4 * kLanes) {
      V v[4];
      for (int k = 0; k < 4; ++k) v[k] = hn::LoadU(f, x + i + k * kLanes);
      for (int k = 0; k < 4; ++k) hn::StoreU(v[k], f, out + i + k * kLanes);
      most = hn::Max(most, hn::Max(hn::Max(v[0], v[1]), hn::Max(v[2], v[3])));
    }
    float found = hn::GetLane(hn::MaxOfLanes(f, most));
    for (; i < width; ++i) {
      out[i] = x[i];
      found = std::max(found, x[i]);
    }
    *largest = found;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace speclab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace speclab::cpu {

HWY_EXPORT(LayerNormRow);
HWY_EXPORT(ActivateRow);
HWY_EXPORT(RoundRow);
HWY_EXPORT(SoftCapRow);
HWY_EXPORT(CopyNoting);

void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, int d, float* out) {
  HWY_DYNAMIC_DISPATCH(LayerNormRow)(x, weight, bias, eps, d, out);
}
void activate_row(Activation kind, const float* x, const float* up, int n, float* out) {
  HWY_DYNAMIC_DISPATCH(ActivateRow)(kind, x, up, n, out);
}
void add_row(const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] += x[i];
}
void round_row(const float* x, int n, Bf16* out) { HWY_DYNAMIC_DISPATCH(RoundRow)(x, n, out); }
void copy_noting(const float* x, int x_stride, int rows, int width, float* out, int out_stride,
                 float* largest, int largest_stride) {
  HWY_DYNAMIC_DISPATCH(CopyNoting)(x, x_stride, rows, width, out, out_stride, largest, largest_stride);
}
void soft_cap_row(float cap, int n, float* x) { HWY_DYNAMIC_DISPATCH(SoftCapRow)(cap, n, x); }

}  // namespace speclab::cpu
#endif
