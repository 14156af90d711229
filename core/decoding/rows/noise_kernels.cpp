#undef HWY_DISABLED_TARGETS
// Arrays of vectors (partial sums, words of Philox) need vectors with a compile-time size.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/decoding/rows/noise_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "core/decoding/rows/row_kernels-inl.h"
#include "core/decoding/rows/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace speclab::row_kernels::HWY_NAMESPACE {

/// -log(1 - v) for v = (x + 1/2) / 2^32. The relative error is small also for tiny v, because the argument t
/// of log(1 + t) is then exactly -v.
VF exponential(hn::Vec<U> x) {
  const F f;
  const U u;
  const I i;
  const auto uniform = [&](hn::Vec<U> bits) {
    const VF high = hn::ConvertTo(f, hn::BitCast(i, hn::ShiftRight<16>(bits)));
    const VF low = hn::ConvertTo(f, hn::BitCast(i, hn::And(bits, hn::Set(u, 0xffffu))));
    return hn::Mul(hn::Add(hn::Mul(high, hn::Set(f, 65536.0f)), hn::Add(low, hn::Set(f, 0.5f))),
                   hn::Set(f, 0x1p-32f));
  };
  const VF v = uniform(x);
  const VF w = uniform(hn::Not(x));  // 1 - v, computed directly to keep its relative precision
  const auto w_bits = hn::BitCast(i, w);
  const auto e = hn::ShiftRight<23>(hn::Sub(w_bits, hn::Set(i, 0x3f3504f3)));  // 0x3f3504f3 = sqrt(1/2)
  const VF mantissa = hn::BitCast(f, hn::Sub(w_bits, hn::ShiftLeft<23>(e)));
  const VF ef = hn::ConvertTo(f, e);
  const VF t = hn::IfThenElse(hn::Eq(ef, hn::Zero(f)), hn::Neg(v), hn::Sub(mantissa, hn::Set(f, 1.0f)));
  return hn::Neg(hn::Add(hn::Mul(ef, hn::Set(f, 0.693147181f)), log1p_reduced<5>(f, t)));
}

/// log of a positive normal float.
VF log_float(VF w) {
  const F f;
  const I i;
  const auto bits = hn::BitCast(i, w);
  const auto e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(i, 0x3f3504f3)));
  const VF t = hn::Sub(hn::BitCast(f, hn::Sub(bits, hn::ShiftLeft<23>(e))), hn::Set(f, 1.0f));
  return hn::Add(hn::Mul(hn::ConvertTo(f, e), hn::Set(f, 0.693147181f)), log1p_reduced<5>(f, t));
}

/// The Philox words of kF consecutive counters, starting at `index`.
struct Words {
  hn::Vec<U> word[4];
};

Words philox(std::uint32_t index, const PhiloxCounter& counter, PhiloxKey key) {
  const U u;
#if HWY_TARGET == HWY_SCALAR
  const PhiloxCounter out = philox4x32({index, counter[1], counter[2], counter[3]}, key);
  return {{hn::Set(u, out[0]), hn::Set(u, out[1]), hn::Set(u, out[2]), hn::Set(u, out[3])}};
#else
  const hn::Repartition<std::uint64_t, U> wide;
  const auto high_low = [&](hn::Vec<U> x, std::uint32_t multiplier, hn::Vec<U>* low) {
    const auto m = hn::Set(u, multiplier);
    const auto even = hn::MulEven(x, m);
    const auto odd = hn::MulEven(hn::BitCast(u, hn::ShiftRight<32>(hn::BitCast(wide, x))), m);
    const auto mask = hn::Set(wide, 0xffffffffull);
    *low = hn::BitCast(u, hn::Or(hn::And(even, mask), hn::ShiftLeft<32>(odd)));
    return hn::BitCast(u, hn::Or(hn::ShiftRight<32>(even), hn::AndNot(mask, odd)));
  };
  Words w{{hn::Iota(u, index), hn::Set(u, counter[1]), hn::Set(u, counter[2]), hn::Set(u, counter[3])}};
  for (int round = 0; round < kPhiloxRounds; ++round) {
    hn::Vec<U> low0, low1;
    const auto high0 = high_low(w.word[0], kPhiloxMultiplier0, &low0);
    const auto high1 = high_low(w.word[2], kPhiloxMultiplier1, &low1);
    w.word[0] = hn::Xor(hn::Xor(high1, w.word[1]), hn::Set(u, key[0]));
    w.word[1] = low1;
    w.word[2] = hn::Xor(hn::Xor(high0, w.word[3]), hn::Set(u, key[1]));
    w.word[3] = low0;
    key = {key[0] + kPhiloxWeyl0, key[1] + kPhiloxWeyl1};
  }
  return w;
#endif
}

// Most tokens need no logarithm. `bound` is the smallest E / weight so far. A token with the random word x
// has E = -log(1 - v) with v = (x + 1/2) / 2^32, so E >= v > x / 2^32. The token loses if x / 2^32 exceeds
// bound * weight (with room for rounding). It also loses if bound * weight < 2^-33, because v is at least
// 2^-33. Only tokens that certainly lose are skipped. So the winner is the same as in the full race, for
// every vector width.
std::size_t Race(std::span<const float> weights, const PhiloxCounter& counter, const PhiloxKey& key,
                 float* arrival_out) {
  const F f;
  const I i;
  const float inf = std::numeric_limits<float>::infinity();
  constexpr float kRoom = 1.00001f;
  float bound = std::numeric_limits<float>::max();
  VF best[kLanes / kF];
  hn::Vec<I> winner[kLanes / kF];
  for (std::size_t k = 0; k < kLanes / kF; ++k) {
    best[k] = hn::Set(f, inf);
    winner[k] = hn::Set(i, -1);
  }
  for (std::size_t base = 0; base < weights.size(); base += kBlock) {
    float tail[kBlock];
    const float* w = weights.data() + base;
    if (base + kBlock > weights.size()) {
      std::fill(std::copy(weights.begin() + static_cast<std::ptrdiff_t>(base), weights.end(), tail),
                tail + kBlock, 0.0f);
      w = tail;
    }
    for (std::size_t k = 0; k < kLanes / kF; ++k) {
      const VF reach = hn::Set(f, bound * kRoom);  // may be inf at first; inf * 0 compares false below
      VF heaviest = hn::Zero(f);
      for (std::size_t word = 0; word < 4; ++word) {
        heaviest = hn::Max(heaviest, hn::LoadU(f, w + word * kLanes + k * kF));
      }
      const auto alive =
          hn::And(hn::Gt(heaviest, hn::Zero(f)), hn::Ge(hn::Mul(heaviest, reach), hn::Set(f, 0x1p-33f)));
      if (hn::AllFalse(f, alive)) continue;
      const Words words = philox(counter[0] + static_cast<std::uint32_t>(base / 4 + k * kF), counter, key);
      for (std::size_t word = 0; word < 4; ++word) {
        const VF weight = hn::LoadU(f, w + word * kLanes + k * kF);
        const VF v_below = hn::Mul(hn::ConvertTo(f, hn::BitCast(i, hn::ShiftRight<1>(words.word[word]))),
                                   hn::Set(f, 0x1p-31f));
        if (hn::AllTrue(f, hn::Gt(v_below, hn::Mul(weight, hn::Set(f, bound * kRoom))))) continue;
        const VF arrival = hn::IfThenElse(hn::Gt(weight, hn::Zero(f)),
                                          hn::Div(exponential(words.word[word]), weight), hn::Set(f, inf));
        const auto sooner = hn::Lt(arrival, best[k]);
        if (hn::AllFalse(f, sooner)) continue;
        best[k] = hn::IfThenElse(sooner, arrival, best[k]);
        const auto token = hn::Iota(i, static_cast<std::int32_t>(base + word * kLanes + k * kF));
        winner[k] = hn::IfThenElse(hn::RebindMask(i, sooner), token, winner[k]);
        float seen[kF];
        hn::StoreU(best[k], f, seen);
        bound = std::min(bound, *std::min_element(seen, seen + kF));
      }
    }
  }
  float times[kLanes];
  std::int32_t tokens[kLanes];
  for (std::size_t k = 0; k < kLanes / kF; ++k) {
    hn::StoreU(best[k], f, times + k * kF);
    hn::StoreU(winner[k], i, tokens + k * kF);
  }
  std::int32_t token = -1;
  float time = inf;
  for (std::size_t k = 0; k < kLanes; ++k) {
    if (tokens[k] >= 0 && (times[k] < time || (times[k] == time && tokens[k] < token))) {
      time = times[k];
      token = tokens[k];
    }
  }
  if (arrival_out != nullptr) *arrival_out = time;
  if (token >= 0) return static_cast<std::size_t>(token);
  return weights.size();
}

void Gumbel(std::size_t first, std::span<float> out, const PhiloxCounter& counter, const PhiloxKey& key) {
  const F f;
  const std::size_t end = first + out.size();
  for (std::size_t base = first / kBlock * kBlock; base < end; base += kBlock) {
    float noise[kBlock];
    for (std::size_t k = 0; k < kLanes / kF; ++k) {
      const Words words = philox(counter[0] + static_cast<std::uint32_t>(base / 4 + k * kF), counter, key);
      for (std::size_t word = 0; word < 4; ++word) {
        hn::StoreU(hn::Neg(log_float(exponential(words.word[word]))), f, noise + word * kLanes + k * kF);
      }
    }
    const std::size_t from = std::max(base, first), to = std::min(base + kBlock, end);
    std::copy(noise + (from - base), noise + (to - base), out.data() + (from - first));
  }
}

}  // namespace speclab::row_kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace speclab::row_kernels {

HWY_EXPORT(Race);
HWY_EXPORT(Gumbel);

std::size_t race(std::span<const float> weights, const PhiloxCounter& counter, const PhiloxKey& key,
                 float* arrival) {
  return HWY_DYNAMIC_DISPATCH(Race)(weights, counter, key, arrival);
}
void gumbel(std::size_t first, std::span<float> out, const PhiloxCounter& counter, const PhiloxKey& key) {
  HWY_DYNAMIC_DISPATCH(Gumbel)(first, out, counter, key);
}

}  // namespace speclab::row_kernels
#endif  // HWY_ONCE
