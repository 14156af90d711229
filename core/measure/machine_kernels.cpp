#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/measure/machine_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/measure/machine_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace speclab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Sums with four vector accumulators, so that only loads limit the speed. Skips a rest below four vectors.
std::uint64_t sum_words(const std::uint64_t* data, std::size_t count) {
  const hn::ScalableTag<std::uint64_t> tag;
  const std::size_t lanes = hn::Lanes(tag);
  auto a = hn::Zero(tag), b = a, c = a, d = a;
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Add(a, hn::LoadU(tag, data + i));
    b = hn::Add(b, hn::LoadU(tag, data + i + lanes));
    c = hn::Add(c, hn::LoadU(tag, data + i + 2 * lanes));
    d = hn::Add(d, hn::LoadU(tag, data + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(tag, hn::Add(hn::Add(a, b), hn::Add(c, d))));
}

/// Runs ten independent chains of multiply-adds, which hide the latency of the arithmetic unit. Returns the
/// number of operations. The sums go to `sink`, so that the compiler keeps the arithmetic.
double multiply_adds(std::int64_t rounds, volatile float* sink) {
  const hn::ScalableTag<float> tag;
  const auto x = hn::Set(tag, 0.999f), y = hn::Set(tag, 1e-3f);
  auto a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x, i = x, j = x;
  for (std::int64_t round = 0; round < rounds; ++round) {
    a = hn::MulAdd(a, x, y);
    b = hn::MulAdd(b, x, y);
    c = hn::MulAdd(c, x, y);
    d = hn::MulAdd(d, x, y);
    e = hn::MulAdd(e, x, y);
    f = hn::MulAdd(f, x, y);
    g = hn::MulAdd(g, x, y);
    h = hn::MulAdd(h, x, y);
    i = hn::MulAdd(i, x, y);
    j = hn::MulAdd(j, x, y);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, d)),
                           hn::Add(hn::Add(e, f), hn::Add(hn::Add(g, h), hn::Add(i, j))));
  *sink = hn::GetLane(hn::SumOfLanes(tag, sum));
  return static_cast<double>(rounds) * 10 * 2 * static_cast<double>(hn::Lanes(tag));
}

}  // namespace speclab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace speclab {
HWY_EXPORT(sum_words);
HWY_EXPORT(multiply_adds);

std::uint64_t sum_words(std::span<const std::uint64_t> words) {
  return HWY_DYNAMIC_DISPATCH(sum_words)(words.data(), words.size());
}

double multiply_adds(std::int64_t rounds) {
  volatile float sink = 0;
  return HWY_DYNAMIC_DISPATCH(multiply_adds)(rounds, &sink);
}

}  // namespace speclab
#endif
