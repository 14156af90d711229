// exp, log and powers with the same bits on every machine, compared with long double.
#include "core/base/exp_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace speclab::exp_log_test {
namespace {

double error_of(double got, long double exact) {
  return static_cast<double>(std::fabs((got - exact) / exact));
}

TEST(ExactFunctions, AreNearTheTruth) {
  std::mt19937_64 random(1);
  const auto fraction = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  double of_log = 0, of_exp = 0, of_power = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = i % 3 == 0   ? 1 + (fraction() - .5) * 1e-3
                     : i % 3 == 1 ? .5 + fraction()
                                  : std::exp(-88 * fraction());
    if (x != 1) of_log = std::max(of_log, error_of(exact_log(x), std::log(static_cast<long double>(x))));
    const double y = (i % 2 == 0 ? -700 : -3) * fraction();
    of_exp = std::max(of_exp, error_of(exact_exp(y), std::exp(static_cast<long double>(y))));
    const double z = std::min(x, 1.0), power = fraction();
    of_power = std::max(of_power, error_of(exact_power(z, power), std::pow(static_cast<long double>(z),
                                                                           static_cast<long double>(power))));
  }
  EXPECT_LT(of_log, 5e-16);
  EXPECT_LT(of_exp, 4e-16);
  EXPECT_LT(of_power, 1e-13);
}

TEST(ExactFunctions, AtTheirEdges) {
  EXPECT_EQ(exact_log(1), 0);
  EXPECT_EQ(exact_exp(0), 1);
  EXPECT_EQ(exact_exp(-701), 0);
  EXPECT_GT(exact_exp(-699), 0);
  EXPECT_EQ(exact_exp(std::nan("")), 0);
  EXPECT_EQ(0 * exact_log(0), 0);
  EXPECT_EQ(exact_power(1, .3), 1);
  EXPECT_EQ(exact_power(0, .3), 0);
}

}  // namespace
}  // namespace speclab::exp_log_test
