#undef HWY_DISABLED_TARGETS
// Arrays of vectors (partial sums, words of Philox) need vectors with a compile-time size.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/decoding/rows/row_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

#include "core/decoding/rows/row_kernels-inl.h"
#include "core/decoding/rows/row_kernels.h"
#include "core/decoding/rows/top_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace speclab::row_kernels::HWY_NAMESPACE {
/// Calls body(pointer, base) for each group of sixteen entries. If the last group is incomplete, it is copied
/// and filled up with `pad`.
template <class T, class Body>
void for_sixteen(std::span<const T> row, T pad, const Body& body) {
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) body(row.data() + i, i);
  if (i < row.size()) {
    std::array<T, kLanes> tail;
    tail.fill(pad);
    std::copy(row.begin() + static_cast<std::ptrdiff_t>(i), row.end(), tail.begin());
    body(tail.data(), i);
  }
}

/// Calls body(a, b, out) for each group of sixteen entries of two rows of equal size, with pointers to the
/// entries and to sixteen values that the body writes.
template <class T, class Body>
void for_sixteen(std::span<const float> a, std::span<const float> b, std::span<T> out, const Body& body) {
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) body(a.data() + i, b.data() + i, out.data() + i);
  if (i < a.size()) {
    std::array<float, kLanes> tail_a{}, tail_b{};
    std::array<T, kLanes> tail_out;
    const auto from = static_cast<std::ptrdiff_t>(i);
    std::copy(a.begin() + from, a.end(), tail_a.begin());
    std::copy(b.begin() + from, b.end(), tail_b.begin());
    body(tail_a.data(), tail_b.data(), tail_out.data());
    std::copy_n(tail_out.begin(), out.size() - i, out.begin() + from);
  }
}

/// Calls body(a, b) for each group of sixteen entries of two rows of equal size.
template <class Body>
void for_sixteen(std::span<const float> a, std::span<const float> b, const Body& body) {
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) body(a.data() + i, b.data() + i);
  if (i < a.size()) {
    std::array<float, kLanes> tail_a{}, tail_b{};
    const auto from = static_cast<std::ptrdiff_t>(i);
    std::copy(a.begin() + from, a.end(), tail_a.begin());
    std::copy(b.begin() + from, b.end(), tail_b.begin());
    body(tail_a.data(), tail_b.data());
  }
}

VD doubles(const float* p) { return hn::PromoteTo(D(), hn::LoadU(H(), p)); }

/// Sums in the order described at kSumChunk. Call done() after each group of sixteen entries.
struct Sums {
  static_assert(kLanes == kSumLanes);
  VD lanes[kLanes / kD];
  double folded = 0;
  std::size_t left = kSumChunk / kLanes;  // groups of sixteen that are left in this chunk
  Sums() { clear(); }
  void clear() {
    for (VD& v : lanes) v = hn::Zero(D());
    left = kSumChunk / kLanes;
  }
  void done() {
    if (--left == 0) fold();
  }
  void fold() {
    double parts[kLanes];
    for (std::size_t k = 0; k < kLanes / kD; ++k) hn::StoreU(lanes[k], D(), parts + k * kD);
    double out = 0;
    for (const double part : parts) out += part;
    folded += out;
    clear();
  }
  double total() {
    fold();
    return folded;
  }
};

/// exp for x <= 0 as 2^n * Taylor(r) with |r| <= ln2 / 2 and degree 7 (truncation error 5e-9). ln 2 is split
/// into 0.693359375 and a small rest, because n * 0.693359375 is exact in float.
VF exp_nonpositive(VF x) {
  const F f;
  const VF clamped = hn::Max(x, hn::Set(f, -100.0f));
  // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits.
  const VF magic = hn::Set(f, 12582912.0f);
  const VF shifted = hn::Add(hn::Mul(clamped, hn::Set(f, 1.44269504f)), magic);
  const VF nf = hn::Sub(shifted, magic);
  VF r = hn::Sub(clamped, hn::Mul(nf, hn::Set(f, 0.693359375f)));
  r = hn::Sub(r, hn::Mul(nf, hn::Set(f, -2.12194440e-4f)));
  // Evaluates pairs of terms (Estrin's scheme). The chain of dependent operations is shorter than Horner's.
  const auto pair = [&](float c1, float c0) { return hn::Add(hn::Mul(hn::Set(f, c1), r), hn::Set(f, c0)); };
  const VF r2 = hn::Mul(r, r);
  const VF low = hn::Add(hn::Mul(pair(1.0f / 6, 0.5f), r2), pair(1.0f, 1.0f));
  const VF high = hn::Add(hn::Mul(pair(1.0f / 5040, 1.0f / 720), r2), pair(1.0f / 120, 1.0f / 24));
  const VF y = hn::Add(hn::Mul(high, hn::Mul(r2, r2)), low);
  const I i;
  const VF power = hn::BitCast(f, hn::ShiftLeft<23>(hn::Add(hn::BitCast(i, shifted), hn::Set(i, 127))));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(f, -87.0f)), hn::Mul(y, power));
}

/// log of positive normal doubles. Lanes that hold 0 give a finite number, which the caller multiplies by 0.
VD log_double(VD w) {
  const D d;
  const hn::RebindToSigned<D> i;
  const auto bits = hn::BitCast(i, w);
  // 0x3fe6a09e667f3bcd = sqrt(1/2)
  const auto shifted = hn::Sub(bits, hn::Set(i, 0x3fe6a09e667f3bcdLL));
  const auto e = hn::ShiftRight<52>(shifted);
  const VD t = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<52>(e))), hn::Set(d, 1.0));
  const VD ef = hn::ConvertTo(d, e);
  return hn::Add(hn::Mul(ef, hn::Set(d, 0.69314718055994530942)), log1p_reduced<11>(d, t));
}

float Max(std::span<const float> row, bool* valid) {
  const F f;
  const VF inf = hn::Set(f, std::numeric_limits<float>::infinity());
  VF best = hn::Neg(inf);
  auto fine = hn::Eq(best, best);
  for_sixteen<float>(row, -std::numeric_limits<float>::infinity(), [&](const float* p, std::size_t) {
    for (std::size_t k = 0; k < kLanes; k += kF) {
      const VF v = hn::LoadU(f, p + k);
      fine = hn::And(fine, hn::Lt(v, inf));  // false for NaN and +inf
      best = hn::Max(best, v);
    }
  });
  *valid = hn::AllTrue(f, fine);
  float lanes[kF];
  hn::StoreU(best, f, lanes);
  return *std::max_element(lanes, lanes + kF);
}

std::size_t Find(std::span<const float> row, float value) {
  const F f;
  const VF wanted = hn::Set(f, value);
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    bool found = false;
    for (std::size_t k = 0; k < kLanes; k += kF) {
      found = found || !hn::AllFalse(f, hn::Eq(hn::LoadU(f, row.data() + i + k), wanted));
    }
    if (found) break;
  }
  while (i < row.size() && row[i] != value) ++i;
  return i;
}

void BlockMax(std::span<const float> row, std::span<float> out) {
  static_assert(kBlock % (4 * kF) == 0);
  const F f;
  const std::size_t whole = row.size() / kBlock;
  for (std::size_t block = 0; block < whole; ++block) {
    const float* p = row.data() + block * kBlock;
    // Four independent chains hide the latency of an operation.
    VF a = hn::LoadU(f, p), b = hn::LoadU(f, p + kF), c = hn::LoadU(f, p + 2 * kF),
       d = hn::LoadU(f, p + 3 * kF);
    for (const float* q = p + 4 * kF; q != p + kBlock; q += 4 * kF) {
      a = hn::Max(a, hn::LoadU(f, q));
      b = hn::Max(b, hn::LoadU(f, q + kF));
      c = hn::Max(c, hn::LoadU(f, q + 2 * kF));
      d = hn::Max(d, hn::LoadU(f, q + 3 * kF));
    }
    out[block] = hn::GetLane(hn::MaxOfLanes(f, hn::Max(hn::Max(a, b), hn::Max(c, d))));
  }
  if (whole < out.size()) {
    bool valid;
    out[whole] = Max(row.subspan(whole * kBlock), &valid);
  }
}

float ReachedBy(std::span<const float> row, std::size_t count) {
  const F f;
  const VF none = hn::Set(f, -std::numeric_limits<float>::infinity());
  VF best[kLanes / kF];
  for (VF& v : best) v = none;
  for_sixteen<float>(row, -std::numeric_limits<float>::infinity(), [&](const float* p, std::size_t) {
    for (std::size_t k = 0; k < kLanes / kF; ++k) {
      const VF v = hn::LoadU(f, p + k * kF);
      best[k] = hn::Max(best[k], hn::IfThenElse(hn::Eq(v, v), v, none));
    }
  });
  float columns[kLanes];
  for (std::size_t k = 0; k < kLanes / kF; ++k) hn::StoreU(best[k], f, columns + k * kF);
  std::nth_element(columns, columns + count - 1, columns + kLanes, std::greater<>());
  return columns[count - 1];
}

/// Calls take(i) for every i < n with p[i] >= bar, ascending.
template <class Take>
void each_reaching(const float* p, std::size_t n, float bar, const Take& take) {
  const F f;
  const VF vbar = hn::Set(f, bar);
  std::size_t i = 0;
  for (; i + kF <= n; i += kF) {
    const auto reaches = hn::Ge(hn::LoadU(f, p + i), vbar);
    if (hn::AllFalse(f, reaches)) continue;
    std::uint8_t bytes[8] = {};  // Highway may write all eight
    hn::StoreMaskBits(f, reaches, bytes);
    for (unsigned bits = bytes[0] | static_cast<unsigned>(bytes[1]) << 8; bits != 0; bits &= bits - 1)
      take(i + static_cast<std::size_t>(std::countr_zero(bits)));
  }
  for (; i < n; ++i) {
    if (p[i] >= bar) take(i);
  }
}

void AppendReaching(std::span<const float> row, std::span<const float> maxima, float bar,
                    std::vector<TopEntry>& out) {
  // Collects several blocks before it reads them, so that their cache lines are fetched together.
  constexpr std::size_t kAhead = 16, kLine = 64 / sizeof(float);
  std::size_t found[kAhead], count = 0;
  const auto read = [&] {
    for (std::size_t j = 0; j < count; ++j) {
      const std::size_t begin = found[j] * kBlock;
      each_reaching(row.data() + begin, std::min(kBlock, row.size() - begin), bar,
                    [&](std::size_t i) { out.push_back({row[begin + i], static_cast<Token>(begin + i)}); });
    }
    count = 0;
  };
  each_reaching(maxima.data(), maxima.size(), bar, [&](std::size_t block) {
    for (std::size_t line = 0; line < kBlock; line += kLine)
      hwy::Prefetch(row.data() + block * kBlock + line);
    found[count++] = block;
    if (count == kAhead) read();
  });
  read();
}

std::size_t CountBefore(std::span<const float> row, float value, std::size_t index) {
  const F f;
  const VF bar = hn::Set(f, value);
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + kF <= row.size(); i += kF) count += hn::CountTrue(f, hn::Gt(hn::LoadU(f, row.data() + i), bar));
  for (; i < row.size(); ++i) count += row[i] > value;
  for (std::size_t j = 0; j < std::min(index, row.size()); ++j) count += row[j] == value;
  return count;
}

double ExpRow(std::span<const float> row, float max, float scale, std::span<float> out) {
  const F f;
  const VF vmax = hn::Set(f, max), vscale = hn::Set(f, scale);
  Sums sums;
  const auto block = [&](const float* p, float* y) {
    for (std::size_t k = 0; k < kLanes; k += kF) {
      hn::StoreU(exp_nonpositive(hn::Mul(hn::Sub(hn::LoadU(f, p + k), vmax), vscale)), f, y + k);
    }
    for (std::size_t k = 0; k < kLanes / kD; ++k) sums.lanes[k] = hn::Add(sums.lanes[k], doubles(y + k * kD));
    sums.done();
  };
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) block(row.data() + i, out.data() + i);
  if (i < row.size()) {
    std::array<float, kLanes> in, y;
    in.fill(-std::numeric_limits<float>::infinity());
    std::copy(row.begin() + static_cast<std::ptrdiff_t>(i), row.end(), in.begin());
    block(in.data(), y.data());
    std::copy_n(y.begin(), row.size() - i, out.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return sums.total();
}

double SumFloat(std::span<const float> row) {
  Sums sums;
  for_sixteen<float>(row, 0.0f, [&](const float* p, std::size_t) {
    for (std::size_t k = 0; k < kLanes / kD; ++k) sums.lanes[k] = hn::Add(sums.lanes[k], doubles(p + k * kD));
    sums.done();
  });
  return sums.total();
}

double SumDouble(std::span<const double> row) {
  const D d;
  Sums sums;
  for_sixteen<double>(row, 0.0, [&](const double* p, std::size_t) {
    for (std::size_t k = 0; k < kLanes / kD; ++k)
      sums.lanes[k] = hn::Add(sums.lanes[k], hn::LoadU(d, p + k * kD));
    sums.done();
  });
  return sums.total();
}

template <class Combine>
double sum_of_two(const Law& p, const Law& q, const Combine& combine) {
  const D d;
  const VD fp = hn::Set(d, p.factor), fq = hn::Set(d, q.factor);
  Sums sums;
  for_sixteen(p.weights, q.weights, [&](const float* a, const float* b) {
    for (std::size_t k = 0; k < kLanes / kD; ++k) {
      const VD value = combine(hn::Mul(doubles(a + k * kD), fp), hn::Mul(doubles(b + k * kD), fq));
      sums.lanes[k] = hn::Add(sums.lanes[k], value);
    }
    sums.done();
  });
  return sums.total();
}

double SumMin(const Law& p, const Law& q) {
  return sum_of_two(p, q, [](VD a, VD b) { return hn::Min(a, b); });
}

double SumProduct(const Law& p, const Law& q) {
  return sum_of_two(p, q, [](VD a, VD b) { return hn::Mul(a, b); });
}

double PositiveDifference(const Law& p, const Law& q, std::span<double> out) {
  const D d;
  const VD fp = hn::Set(d, p.factor), fq = hn::Set(d, q.factor);
  Sums sums;
  for_sixteen<double>(p.weights, q.weights, out, [&](const float* a, const float* b, double* y) {
    for (std::size_t k = 0; k < kLanes / kD; ++k) {
      const VD value = hn::Sub(hn::Mul(doubles(a + k * kD), fp), hn::Mul(doubles(b + k * kD), fq));
      const VD positive = hn::Max(value, hn::Zero(d));
      sums.lanes[k] = hn::Add(sums.lanes[k], positive);
      hn::StoreU(positive, d, y + k * kD);
    }
    sums.done();
  });
  return sums.total();
}

/// Writes combine(a, b) for the entries of two rows of equal size, and returns the sum. The last group of
/// sixteen is filled up with zeros.
template <class A, class B, class Combine>
double write_rows(std::span<const A> a, std::span<const B> b, std::span<double> out, const Combine& combine) {
  Sums sums;
  const auto block = [&](const A* x, const B* y, double* to) {
    for (std::size_t k = 0; k < kLanes / kD; ++k) {
      const VD value = combine(x + k * kD, y + k * kD);
      sums.lanes[k] = hn::Add(sums.lanes[k], value);
      hn::StoreU(value, D(), to + k * kD);
    }
    sums.done();
  };
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) block(a.data() + i, b.data() + i, out.data() + i);
  if (i < a.size()) {
    std::array<A, kLanes> tail_a{};
    std::array<B, kLanes> tail_b{};
    std::array<double, kLanes> tail_out;
    const auto from = static_cast<std::ptrdiff_t>(i);
    std::copy(a.begin() + from, a.end(), tail_a.begin());
    std::copy(b.begin() + from, b.end(), tail_b.begin());
    block(tail_a.data(), tail_b.data(), tail_out.data());
    std::copy_n(tail_out.begin(), out.size() - i, out.begin() + from);
  }
  return sums.total();
}

double NextResidual(std::span<const double> law, double law_sum, double scale, std::span<const float> q,
                    double q_sum, std::span<double> out) {
  const D d;
  const VD of_law = hn::Set(d, law_sum), of_q = hn::Set(d, q_sum), factor = hn::Set(d, scale);
  return write_rows(law, q, out, [&](const double* a, const float* b) {
    const VD p = hn::Mul(factor, hn::Div(hn::LoadU(d, a), of_law));
    return hn::Max(hn::Sub(p, hn::Div(doubles(b), of_q)), hn::Zero(d));
  });
}

/// Adds up combine(a, b) over two rows of equal size; the last group of sixteen is filled up with zeros.
template <class A, class B, class Combine>
double sum_of_rows(std::span<const A> a, std::span<const B> b, const Combine& combine) {
  Sums sums;
  const auto block = [&](const A* x, const B* y) {
    for (std::size_t k = 0; k < kLanes / kD; ++k)
      sums.lanes[k] = hn::Add(sums.lanes[k], combine(x + k * kD, y + k * kD));
    sums.done();
  };
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) block(a.data() + i, b.data() + i);
  if (i < a.size()) {
    std::array<A, kLanes> tail_a{};
    std::array<B, kLanes> tail_b{};
    const auto from = static_cast<std::ptrdiff_t>(i);
    std::copy(a.begin() + from, a.end(), tail_a.begin());
    std::copy(b.begin() + from, b.end(), tail_b.begin());
    block(tail_a.data(), tail_b.data());
  }
  return sums.total();
}

double SumMinResidual(std::span<const double> law, double law_sum, double scale, std::span<const float> q,
                      double q_sum) {
  const D d;
  const VD of_law = hn::Set(d, law_sum), of_q = hn::Set(d, q_sum), factor = hn::Set(d, scale);
  return sum_of_rows(law, q, [&](const double* a, const float* b) {
    return hn::Min(hn::Div(doubles(b), of_q), hn::Mul(factor, hn::Div(hn::LoadU(d, a), of_law)));
  });
}

double SumMinDivided(std::span<const double> law, std::span<const double> q, double rho) {
  const D d;
  const VD divisor = hn::Set(d, rho);
  return sum_of_rows(law, q, [&](const double* a, const double* b) {
    return hn::Min(hn::LoadU(d, b), hn::Div(hn::LoadU(d, a), divisor));
  });
}

double SumMinScaled(std::span<const double> p, std::span<const double> q, double scale) {
  const D d;
  const VD factor = hn::Set(d, scale);
  return sum_of_rows(p, q, [&](const double* a, const double* b) {
    return hn::Min(hn::LoadU(d, b), hn::Mul(factor, hn::LoadU(d, a)));
  });
}

double PositiveDifferenceScaled(std::span<const double> p, double scale, std::span<const double> q,
                                std::span<double> out) {
  const D d;
  const VD factor = hn::Set(d, scale);
  return write_rows(p, q, out, [&](const double* a, const double* b) {
    return hn::Max(hn::Sub(hn::Mul(factor, hn::LoadU(d, a)), hn::LoadU(d, b)), hn::Zero(d));
  });
}

double SumWLogW(std::span<const float> row) {
  Sums sums;
  for_sixteen<float>(row, 0.0f, [&](const float* p, std::size_t) {
    for (std::size_t k = 0; k < kLanes / kD; ++k) {
      const VD w = doubles(p + k * kD);
      sums.lanes[k] = hn::Add(sums.lanes[k], hn::Mul(w, log_double(w)));
    }
    sums.done();
  });
  return sums.total();
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace speclab::row_kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace speclab::row_kernels {

HWY_EXPORT(Max);
HWY_EXPORT(Find);
HWY_EXPORT(BlockMax);
HWY_EXPORT(ReachedBy);
HWY_EXPORT(AppendReaching);
HWY_EXPORT(CountBefore);
HWY_EXPORT(ExpRow);
HWY_EXPORT(SumFloat);
HWY_EXPORT(SumDouble);
HWY_EXPORT(SumMin);
HWY_EXPORT(SumProduct);
HWY_EXPORT(PositiveDifference);
HWY_EXPORT(NextResidual);
HWY_EXPORT(SumMinResidual);
HWY_EXPORT(SumMinDivided);
HWY_EXPORT(SumMinScaled);
HWY_EXPORT(PositiveDifferenceScaled);
HWY_EXPORT(SumWLogW);
HWY_EXPORT(TargetName);

float max(std::span<const float> row, bool* valid) { return HWY_DYNAMIC_DISPATCH(Max)(row, valid); }
std::size_t find(std::span<const float> row, float value) { return HWY_DYNAMIC_DISPATCH(Find)(row, value); }
void block_max(std::span<const float> row, std::span<float> out) { HWY_DYNAMIC_DISPATCH(BlockMax)(row, out); }
float reached_by(std::span<const float> row, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(ReachedBy)(row, count);
}
void append_reaching(std::span<const float> row, std::span<const float> maxima, float bar,
                     std::vector<TopEntry>& out) {
  HWY_DYNAMIC_DISPATCH(AppendReaching)(row, maxima, bar, out);
}
std::size_t count_before(std::span<const float> row, float value, std::size_t index) {
  return HWY_DYNAMIC_DISPATCH(CountBefore)(row, value, index);
}
double exp_row(std::span<const float> row, float max, float scale, std::span<float> out) {
  return HWY_DYNAMIC_DISPATCH(ExpRow)(row, max, scale, out);
}
double sum(std::span<const float> row) { return HWY_DYNAMIC_DISPATCH(SumFloat)(row); }
double sum(std::span<const double> row) { return HWY_DYNAMIC_DISPATCH(SumDouble)(row); }
double sum_min(const Law& p, const Law& q) { return HWY_DYNAMIC_DISPATCH(SumMin)(p, q); }
double sum_product(const Law& p, const Law& q) { return HWY_DYNAMIC_DISPATCH(SumProduct)(p, q); }
double positive_difference(const Law& p, const Law& q, std::span<double> out) {
  return HWY_DYNAMIC_DISPATCH(PositiveDifference)(p, q, out);
}
double next_residual(std::span<const double> law, double law_sum, double scale, std::span<const float> q,
                     double q_sum, std::span<double> out) {
  return HWY_DYNAMIC_DISPATCH(NextResidual)(law, law_sum, scale, q, q_sum, out);
}
double sum_min_residual(std::span<const double> law, double law_sum, double scale, std::span<const float> q,
                        double q_sum) {
  return HWY_DYNAMIC_DISPATCH(SumMinResidual)(law, law_sum, scale, q, q_sum);
}
double sum_min_divided(std::span<const double> law, std::span<const double> q, double rho) {
  return HWY_DYNAMIC_DISPATCH(SumMinDivided)(law, q, rho);
}
double sum_min_scaled(std::span<const double> p, std::span<const double> q, double scale) {
  return HWY_DYNAMIC_DISPATCH(SumMinScaled)(p, q, scale);
}
double positive_difference(std::span<const double> p, double scale, std::span<const double> q,
                           std::span<double> out) {
  return HWY_DYNAMIC_DISPATCH(PositiveDifferenceScaled)(p, scale, q, out);
}
double sum_w_log_w(std::span<const float> row) { return HWY_DYNAMIC_DISPATCH(SumWLogW)(row); }
const char* target_name() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace speclab::row_kernels
#endif  // HWY_ONCE
