// The arithmetic of the choice among paths: classes of p/q, their masses, and the share that is best.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "core/backend/path_choice.h"
#include "core/decoding/rows/row_kernels.h"

namespace speclab::path_choice_test {
namespace {

TEST(PathChoice, ClassesFollowTheRatioInStepsBelowOnePercent) {
  int before = 0;
  double begin = std::exp2(-8);  // of the class
  for (double ratio = std::exp2(-9); ratio < std::exp2(9); ratio *= 1.0003) {
    const int found = ratio_class(ratio * .125, .125);
    ASSERT_GE(found, before);
    ASSERT_LE(found, before + 1) << ratio;
    if (found > before) begin = ratio;
    if (found > 0 && found < kRatioClasses - 1) {
      ASSERT_LT(ratio / begin, 1.01) << ratio;
    }
    before = found;
  }
  EXPECT_EQ(before, kRatioClasses - 1);
  EXPECT_EQ(ratio_class(0, .5), 0);
  EXPECT_EQ(ratio_class(1e-300, 1), 0);
  EXPECT_EQ(ratio_class(1, 1e-300), kRatioClasses - 1);
  EXPECT_EQ(ratio_class(1, std::numeric_limits<double>::denorm_min()), kRatioClasses - 1);
  EXPECT_EQ(ratio_class(.5, .5), kRatioClasses / 2);
  EXPECT_EQ(ratio_class(std::nextafter(.5, 0), .5), kRatioClasses / 2 - 1);
}

TEST(PathChoice, MassesAreRoundedDownAndARowFits) {
  EXPECT_EQ(class_mass(0), 0u);
  EXPECT_EQ(class_mass(1), std::uint64_t{1} << 62);
  EXPECT_EQ(class_mass(std::exp2(-62)), 1u);
  EXPECT_EQ(class_mass(std::exp2(-62) * .999), 0u);
  EXPECT_EQ(class_mass(.75), std::uint64_t{3} << 60);
}

/// Random masses of classes, with sums of 1.
struct Classes {
  std::vector<double> q, p;
  Classes(int count, std::mt19937& random) {
    for (std::vector<double>* of : {&q, &p}) {
      double sum = 0;
      for (int i = 0; i < count; ++i) {
        of->push_back(random() % 5 == 0 ? 0 : std::exp(2 * std::normal_distribution<double>()(random)));
        sum += of->back();
      }
      of->front() += 1e-3;
      for (double& x : *of) x /= sum + 1e-3;
    }
  }
  std::vector<RatioClass> of(int draws, double rho) const {
    std::uint64_t before = 0, all = 0;
    for (const double x : q) all += class_mass(x);
    std::vector<RatioClass> out;
    for (std::size_t i = 0; i < q.size(); ++i) {
      out.push_back(ratio_class_of(before, class_mass(q[i]), class_mass(p[i]), all, draws, rho));
      before += class_mass(q[i]);
    }
    return out;
  }
};

TEST(PathChoice, FactorsGiveTheLawOfTheBestDraw) {
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    const Classes classes(6, random);
    for (const int draws : {1, 2, 3, 7}) {
      const std::vector<RatioClass> found = classes.of(draws, .5);
      double up_to = 0, gains = 0;
      for (std::size_t j = 0; j < found.size(); ++j) {
        const double below = up_to;
        up_to += classes.q[j];
        const double best = std::pow(up_to, draws) - std::pow(below, draws);
        EXPECT_NEAR(classes.q[j] * found[j].factor, best, 1e-14);
        EXPECT_NEAR(found[j].gain, best - classes.q[j], 1e-14);
        EXPECT_NEAR(found[j].room, .5 * classes.p[j] - classes.q[j], 1e-14);
        gains += found[j].gain;
        if (draws == 1) {
          EXPECT_NEAR(found[j].factor, 1, 1e-14);
        }
      }
      EXPECT_NEAR(gains, 0, 1e-14);
    }
  }
}

// No share of a fine grid is better than the one that the search finds.
TEST(PathChoice, TheShareMaximisesWhatMayBeAccepted) {
  std::mt19937 random(5);
  int none = 0, all = 0, between = 0;
  for (int i = 0; i < 300; ++i) {
    const Classes classes(1 + static_cast<int>(random() % 6), random);
    const double rho = i % 3 == 0 ? 1 : static_cast<double>(random() % 1000) / 1000;
    const int draws = 2 + static_cast<int>(random() % 3);
    const std::vector<RatioClass> found = classes.of(draws, rho);
    const auto accepted = [&](double share) {
      double sum = 0;
      for (std::size_t j = 0; j < found.size(); ++j)
        sum += std::min(classes.q[j] * factor_at(found[j].factor, share), rho * classes.p[j]);
      return sum;
    };
    ShareSearch search;
    while (!search.done()) {
      row_kernels::FixedSum slope;
      for (std::size_t j = 0; j < found.size(); ++j)
        slope.add(j, slope_of(found[j].gain, found[j].room, search.share()));
      search.tell(slope.total());
    }
    const double best = accepted(search.found());
    for (int j = 0; j <= 1000; ++j) ASSERT_LE(accepted(j / 1000.0), best + 1e-9) << i << " at " << j;
    ++(search.found() == 0 ? none : search.found() == 1 ? all : between);
  }
  EXPECT_GT(none, 20);
  EXPECT_GT(all, 20);
  EXPECT_GT(between, 20);
}

}  // namespace
}  // namespace speclab::path_choice_test
