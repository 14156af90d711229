// Shared by the files of class f32 that use the vector library Highway. Highway compiles such a file once for
// each instruction set, and this file with it. Include this file after highway.h.
#if defined(SPECLAB_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SPECLAB_LANES_INL_H
#undef SPECLAB_LANES_INL_H
#else
#define SPECLAB_LANES_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace speclab::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors have at most 16 lanes, because reductions use 16 partial sums and a panel has 16 outputs.
using F = hn::CappedTag<float, 16>;
using U = hn::RebindToUnsigned<F>;
using V = hn::Vec<F>;
constexpr F f;
constexpr U u;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(f));

// Adds 16 partial sums in a fixed order.
HWY_INLINE float reduce16(const float* partial) {
  float level[8];
  for (int i = 0; i < 8; ++i) level[i] = partial[i] + partial[i + 8];
  for (int i = 0; i < 4; ++i) level[i] += level[i + 4];
  return (level[0] + level[2]) + (level[1] + level[3]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace speclab::cpu
HWY_AFTER_NAMESPACE();
#endif
