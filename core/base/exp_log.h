#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
// Inlined, because a function call on a GPU would need a stack.
#define SPECLAB_EXACT __host__ __device__ __forceinline__
#else
#define SPECLAB_EXACT inline
#endif

// exp, log, powers and entropies of doubles, for acceptance decisions. The host and the GPU compile the same
// code, and results have the same bits on both. The functions use only basic arithmetic and bit operations,
// and no multiply-add is fused. The versions in math libraries differ from each other in the last bit, and an
// acceptance decision must not depend on the machine that makes it.

namespace speclab {

/// log(x) of a normal x > 0; relative error below 5e-16, also near 1. For x = 0 it returns some finite
/// number, so that the product 0 log 0 is 0. log_double in core/decoding/rows/row_kernels.cpp gives the same
/// bits.
SPECLAB_EXACT double exact_log(double x) {
  std::int64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const std::int64_t e = (bits - 0x3fe6a09e667f3bcdLL) >> 52;  // e = 0 for x from sqrt(1/2) to sqrt(2)
  bits -= static_cast<std::int64_t>(static_cast<std::uint64_t>(e) << 52);
  double mantissa;
  std::memcpy(&mantissa, &bits, sizeof mantissa);
  const double t = mantissa - 1, s = t / (t + 2), s2 = s * s;  // log(mantissa) = 2 artanh(s)
  double y = 1.0 / 21;
  for (int k = 9; k >= 0; --k) y = y * s2 + 1.0 / (2 * k + 1);
  return static_cast<double>(e) * 0.69314718055994530942 + (s + s) * y;
}

/// exp(x) for x <= 0; 0 for x below -700. Relative error below 4e-16.
SPECLAB_EXACT double exact_exp(double x) {
  if (!(x >= -700)) return 0;
  const double magic = 6755399441055744.0;  // adding 1.5 * 2^52 rounds to the nearest integer
  const double whole = (x * 1.44269504088896340736 + magic) - magic;
  const double r = (x - whole * 0.693147180369123816490) -
                   whole * 1.90821492927058770002e-10;  // fdlibm's two parts of log 2
  const double inverse_factorial[] = {1,
                                      1,
                                      1.0 / 2,
                                      1.0 / 6,
                                      1.0 / 24,
                                      1.0 / 120,
                                      1.0 / 720,
                                      1.0 / 5040,
                                      1.0 / 40320,
                                      1.0 / 362880,
                                      1.0 / 3628800,
                                      1.0 / 39916800,
                                      1.0 / 479001600,
                                      1.0 / 6227020800.0};
  double y = inverse_factorial[13];
  for (int k = 12; k >= 0; --k) y = y * r + inverse_factorial[k];
  const std::int64_t bits = (static_cast<std::int64_t>(whole) + 1023) << 52;
  double power;
  std::memcpy(&power, &bits, sizeof power);
  return y * power;
}

/// x^power for power > 0 and a normal x in (0, 1]; relative error below 1e-13. 0 for x = 0, and for results
/// below exp(-700).
SPECLAB_EXACT double exact_power(double x, double power) {
  return x > 0 ? exact_exp(power * exact_log(x)) : 0;
}

/// The entropy, in nats, of the law w / sum of a row of weights w. `sum` is their sum, `w_log_w` the sum of
/// w log w.
SPECLAB_EXACT double exact_entropy(double sum, double w_log_w) {
  const double entropy = exact_log(sum) - w_log_w / sum;
  return entropy > 0 ? entropy : 0;
}

}  // namespace speclab
