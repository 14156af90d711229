#include "core/theory/reliability.h"

#include <gtest/gtest.h>

#include <random>

namespace speclab::theory::reliability_test {
namespace {

TEST(Reliability, CountedByHand) {
  // Two bins: .2 and .7, where no forecast came true, and .8 and .9, where all came true.
  const auto found = reliability({{.9, true}, {.2, false}, {.7, false}, {.8, true}}, 2);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->brier, (.01 + .04 + .49 + .04) / 4, 1e-15);
  EXPECT_NEAR(found->ece, (.45 + .15) / 2, 1e-15);
  ASSERT_EQ(found->bins.size(), 2u);
  EXPECT_NEAR(found->bins[0].forecast, .45, 1e-15);
  EXPECT_EQ(found->bins[0].share, 0);
  EXPECT_NEAR(found->bins[1].forecast, .85, 1e-15);
  EXPECT_EQ(found->bins[1].share, 1);
  EXPECT_EQ(found->bins[1].count, 2);
  EXPECT_FALSE(reliability({}));
}

TEST(Reliability, EqualForecastsShareABin) {
  const auto found = reliability({{.5, true}, {.5, false}, {.5, true}, {.5, false}, {.9, true}}, 5);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->bins.size(), 2u);
  EXPECT_EQ(found->bins[0].count, 4);
  EXPECT_EQ(found->bins[0].share, .5);
  EXPECT_EQ(found->bins[1].count, 1);
  EXPECT_NEAR(found->ece, .1 / 5, 1e-15);
}

TEST(Reliability, GoodForecastsHaveASmallError) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<Forecast> good, bold;
  for (int i = 0; i < 20'000; ++i) {
    const double p = uniform(random);
    const bool happened = uniform(random) < p;
    good.push_back({p, happened});
    bold.push_back({p < .5 ? 0. : 1., happened});
  }
  const auto of_good = reliability(good), of_bold = reliability(bold);
  EXPECT_EQ(of_good->bins.size(), 10u);
  for (const ReliabilityBin& bin : of_good->bins) EXPECT_EQ(bin.count, 2000);
  EXPECT_LT(of_good->ece, .02);
  EXPECT_NEAR(of_good->brier, 1. / 6, .01);  // the integral of p (1 - p)
  EXPECT_NEAR(of_bold->ece, .25, .02);
  EXPECT_NEAR(of_bold->brier, .25, .02);
}

}  // namespace
}  // namespace speclab::theory::reliability_test
