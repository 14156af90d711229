#include "core/theory/explained/resampled_values.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace speclab::theory::resampled_values_test {
namespace {

/// The mean of the drawn values; NaN if the first value is drawn more than twice.
double statistic(std::span<const double> values, std::span<const std::size_t> drawn) {
  double sum = 0;
  int first = 0;
  for (const std::size_t i : drawn) sum += values[i], first += i == 0 ? 1 : 0;
  return first > 2 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(drawn.size());
}

TEST(ResampledValues, GiveTheIntervalOfTheBootstrap) {
  const std::vector<double> values = {1, 4, 2, 8, 5, 7};
  ResampledValues collected;
  const auto wanted = stats::bootstrap_interval(values.size(), [&](std::span<const std::size_t> drawn) {
    const double value = statistic(values, drawn);
    collected.add({{"mean", value}, {"minus", -value}});
    return value;
  });
  const auto mean = collected.interval("mean"), minus = collected.interval("minus");
  ASSERT_TRUE(wanted && mean && minus);
  EXPECT_EQ(mean->lo, wanted->lo);
  EXPECT_EQ(mean->hi, wanted->hi);
  EXPECT_NEAR(minus->lo, -wanted->hi, 1e-12);
  EXPECT_LT(wanted->lo, wanted->hi);
}

TEST(ResampledValues, AMissingNameHasTheOtherValue) {
  ResampledValues values;
  for (int i = 0; i < 10; ++i)
    values.add(i == 0 ? std::map<std::string, double>{{"term", 1}} : std::map<std::string, double>{});
  EXPECT_EQ(values.interval("term")->lo, 0);
  EXPECT_NEAR(values.interval("term")->hi, .775, 1e-12) << "place 8.775 of nine zeros and a one";
  EXPECT_EQ(values.interval("term", 3)->hi, 3);
  EXPECT_FALSE(values.interval("other"));
}

TEST(ResampledValues, MoreThanHalfMustBeDefined) {
  ResampledValues values;
  EXPECT_FALSE(values.interval("x"));
  for (int i = 0; i < 3; ++i)
    values.add({{"x", i}, {"y", i == 0 ? std::numeric_limits<double>::infinity() : i}});
  for (int i = 0; i < 3; ++i) values.add_undefined();
  ASSERT_TRUE(values.interval("x")) << "half is enough";
  EXPECT_NEAR(values.interval("x")->lo, .05, 1e-12);
  EXPECT_FALSE(values.interval("y")) << "two of six";
  values.add_undefined();
  EXPECT_FALSE(values.interval("x"));
}

}  // namespace
}  // namespace speclab::theory::resampled_values_test
