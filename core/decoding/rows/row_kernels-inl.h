// Vector types and a logarithm that the kernels over rows share. This file is compiled once for each
// instruction set: every pass of Highway's foreach_target includes it again.
#if defined(SPECLAB_ROW_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPECLAB_ROW_KERNELS_INL_H_
#undef SPECLAB_ROW_KERNELS_INL_H_
#else
#define SPECLAB_ROW_KERNELS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace speclab::row_kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kLanes = 16;  // number of partial sums; every vector width in floats divides it
using F = hn::CappedTag<float, kLanes>;
using U = hn::RebindToUnsigned<F>;
using I = hn::RebindToSigned<F>;
using D = hn::CappedTag<double, hn::MaxLanes(F()) == 1 ? 1 : hn::MaxLanes(F()) / 2>;
using H = hn::Rebind<float, D>;  // as many floats as D has doubles
using VF = hn::Vec<F>;
using VD = hn::Vec<D>;
constexpr std::size_t kF = hn::MaxLanes(F());
constexpr std::size_t kD = hn::MaxLanes(D());

/// log(1 + t) for 1 + t in [sqrt(1/2), sqrt(2)], as 2 artanh(s) with s = t / (2 + t), s^2 <= .0295. The
/// relative error of the series is below 1e-8 with five terms (float) and 1e-16 with eleven (double).
template <int kTerms, class Tag, class V>
V log1p_reduced(Tag tag, V t) {
  using T = hn::TFromD<Tag>;
  const V s = hn::Div(t, hn::Add(t, hn::Set(tag, T{2})));
  const V s2 = hn::Mul(s, s);
  V y = hn::Set(tag, T{1} / T{2 * kTerms - 1});
  for (int k = kTerms - 2; k >= 0; --k)
    y = hn::Add(hn::Mul(y, s2), hn::Set(tag, T{1} / static_cast<T>(2 * k + 1)));
  return hn::Mul(hn::Add(s, s), y);
}

}  // namespace speclab::row_kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
