// Compares the arithmetic that host and devices share with known values. A comparison of host and device
// (tests/decoding/rules/device_acceptance_test.cpp) cannot find a formula that is wrong on both sides.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/backend/rule_forms.h"

namespace speclab::rule_forms_test {
namespace {

TEST(RuleForms, RhoOfAChildIsAtMostOne) {
  EXPECT_EQ(rho_of_child(.5, .25, .5), .25);
  EXPECT_EQ(rho_of_child(1, .75, .25), 1);
  EXPECT_EQ(rho_of_child(1, .25, .25), 1);
  EXPECT_EQ(rho_of_child(1, 0, .25), 0);
}

TEST(RuleForms, RhoAfterAFailure) {
  EXPECT_EQ(rho_after_failure(.5, .25), .25 / .75);
  EXPECT_EQ(rho_after_failure(.25, .25), .25);
  EXPECT_EQ(rho_after_failure(1, .125), 1);
  // Nothing is left. Then rho = 1 stays 1, and any other rho becomes 0.
  EXPECT_EQ(rho_after_failure(.5, 0), 0);
  EXPECT_EQ(rho_after_failure(1, 0), 1);
}

TEST(RuleForms, ResidualsAreNotNegative) {
  EXPECT_EQ(path_residual(.5, .75, .25), .125);
  EXPECT_EQ(path_residual(.5, .25, .25), 0);
  EXPECT_EQ(path_residual(1, .25, .25), 0);
  EXPECT_EQ(difference_weight(6, .125, 1, .25), .5);
  EXPECT_EQ(difference_weight(1, .125, 1, .25), 0);
  EXPECT_EQ(group_residual({.rho = 2, .share = 1.5}, .5, .125), .5 - .125 * 1.5);  // q is smaller
  EXPECT_EQ(group_residual({.rho = 2, .share = 1.5}, .25, .5), .25 - .125 * 1.5);  // p / rho is smaller
  EXPECT_EQ(group_residual({.rho = 1, .share = 2}, .25, .5), 0);
}

TEST(RuleForms, TheWeightToReachFollowsTheConditions) {
  constexpr double kUnused = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(weight_to_reach({.bar = .25}, kUnused, 8, kUnused), 2);
  EXPECT_EQ(weight_to_reach({.of_best = .5}, kUnused, 8, 3), 1.5);
  EXPECT_EQ(weight_to_reach({.bar = .25, .of_best = .5}, kUnused, 8, 3), 2);
  EXPECT_EQ(weight_to_reach({.bar = .25, .of_best = .5}, kUnused, 8, 6), 3);
  EXPECT_EQ(weight_to_reach({.bar = .25, .typical = true, .delta = .5}, 0, 8, kUnused), 2);
  EXPECT_EQ(weight_to_reach({.bar = .5, .typical = true, .delta = .125}, 0, 8, kUnused), 1);
  EXPECT_NEAR(weight_to_reach({.bar = .5, .typical = true, .delta = 1}, std::log(8.0), 8, kUnused), 1, 1e-14);
  EXPECT_GT(weight_to_reach({.of_best = 1}, kUnused, 8, kUnused), std::numeric_limits<float>::max());
  EXPECT_FALSE(compares_with_best({}));
  EXPECT_TRUE(compares_with_best({.of_best = .5}));
  EXPECT_FALSE(compares_with_best({.of_best = 1}));
}

TEST(RuleForms, ATokenAtTheBar) {
  EXPECT_TRUE(meets_criterion({}, 2, -1, 5, 2));
  EXPECT_FALSE(meets_criterion({}, 2, -1, 5, 1.5));
  EXPECT_FALSE(meets_criterion({.typical = true}, 2, -1, 5, 2));
  EXPECT_TRUE(meets_criterion({.typical = true}, 2, -1, 5, 2.5));
  EXPECT_FALSE(meets_criterion({}, 0, -1, 5, 0));  // a token of probability 0
  EXPECT_TRUE(meets_criterion({.nearby = 1}, 0, 4, 5, 1));
  EXPECT_FALSE(meets_criterion({.nearby = 1}, 0, 4, 6, 1));
}

TEST(RuleForms, LogarithmsAndEntropies) {
  EXPECT_NEAR(log_of_accepted(.5), std::log(.5), 1e-15);
  EXPECT_NEAR(log_of_accepted(0), std::log(std::numeric_limits<double>::min()), 1e-12);
  EXPECT_NEAR(exact_entropy(4, 0), std::log(4.0), 1e-14);                  // four weights of 1
  EXPECT_NEAR(exact_entropy(4, 4 * std::log(2.0)), std::log(2.0), 1e-14);  // two weights of 2
  EXPECT_EQ(exact_entropy(1, std::numeric_limits<double>::epsilon()), 0);  // rounded below 0
}

}  // namespace
}  // namespace speclab::rule_forms_test
