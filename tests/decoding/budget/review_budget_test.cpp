#include "core/decoding/budget/review_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/base/error.h"

namespace speclab::review_budget_test {
namespace {

constexpr double kFirstGuess = .6;  // P(a guess is kept) before anything was seen

StepCosts times_of(std::vector<double> review_ns, std::vector<double> guess_ns) {
  return {.target_ns = std::move(review_ns), .draft_ns = std::move(guess_ns)};
}

/// The least expected time of a chain that lacks n tokens, over all policies, if each guess is kept with this
/// probability and the guessing model has missed some tokens.
double least_time(const StepCosts& times, double kept, int n, int missed, int most_guesses) {
  if (n == 0) return 0;
  double least = times.target(1) + least_time(times, kept, n - 1, missed + 1, most_guesses);
  for (int g = 1; g <= std::min(most_guesses, n - 1); ++g) {
    double ns = times.draft(1 + missed) + (g - 1) * times.draft(1) + times.target(g + 1), reached = 1;
    for (int k = 0; k < g; ++k, reached *= kept)
      ns += reached * (1 - kept) * least_time(times, kept, n - k - 1, 0, most_guesses);
    ns += reached * least_time(times, kept, n - g - 1, 1, most_guesses);  // it has not read its last guess
    least = std::min(least, ns);
  }
  return least;
}

TEST(ReviewBudget, AChainTakesTheLeastExpectedTime) {
  for (const StepCosts& times :
       {times_of({10, 10, 10}, {.1}), times_of({10, 11, 13, 16, 20}, {1, 1.5}), times_of({10, 14, 18}, {2}),
        times_of({10, 30}, {1}), times_of({10, 11}, {1, 4, 5})}) {
    for (const int most : {0, 1, 2, 5}) {
      for (const int missed : {0, 1, 3}) {
        ReviewBudget budget(6);
        budget.plan(times, missed, most);
        for (int n = 0; n <= 6; ++n) {
          EXPECT_NEAR(budget.chain_ns(n), least_time(times, kFirstGuess, n, missed, most), 1e-12)
              << n << ", " << most << ", " << missed;
          EXPECT_GE(budget.chain_ns(n), n == 0 ? 0 : budget.chain_ns(n - 1)) << n;
        }
      }
    }
  }
}

TEST(ReviewBudget, GuessesWhereTheyPay) {
  ReviewBudget budget(8);
  budget.plan(times_of({10, 10}, {1e-3}), 0, 4);
  EXPECT_EQ(budget.guesses(8), 4) << "the limit";
  EXPECT_EQ(budget.guesses(3), 2) << "the review adds the third token";
  EXPECT_EQ(budget.guesses(1), 0);
  EXPECT_THROW(budget.guesses(9), Bug);
  budget.plan(times_of({10, 10}, {1e-3}), 0, 0);
  EXPECT_EQ(budget.guesses(8), 0);
  ReviewBudget none(8);
  none.plan(times_of({10, 12}, {}), 7, 0);
  EXPECT_DOUBLE_EQ(none.chain_ns(3), 30) << "without guesses the table may lack their times";
}

TEST(ReviewBudget, TokensThatWereMissedDelayTheFirstGuessOfAStep) {
  const StepCosts times = times_of({10, 11}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  ReviewBudget budget(4);
  budget.plan(times, 0, 1);
  const double fresh = budget.chain_ns(4);
  budget.plan(times, 2, 1);
  EXPECT_DOUBLE_EQ(budget.chain_ns(4), fresh + 2);
  EXPECT_EQ(budget.guesses(4), 1);
  budget.plan(times, 9, 1);
  EXPECT_DOUBLE_EQ(budget.chain_ns(2), 20) << "two reviews without guesses take less time";
  EXPECT_EQ(budget.guesses(2), 0);
}

// A guess for a chain of two tokens saves 4, and each token that its forward also reads costs 5.
TEST(ReviewBudget, OnlyReviewsWithGuessesLetTheGuessingModelCatchUp) {
  ReviewBudget budget(4);
  budget.plan(times_of({10, 11}, {1, 6, 11, 16, 21}), 0, 1);
  EXPECT_EQ(budget.guesses(2), 1);
  budget.reviewed(0, 0);
  EXPECT_EQ(budget.guesses(2), 0) << "it has missed the token of that review";
  budget.reviewed(1, 0);
  EXPECT_EQ(budget.guesses(2), 1) << "it has read all tokens but the last one";
  budget.reviewed(1, 1);
  EXPECT_EQ(budget.guesses(2), 0) << "it has not read its last guess";
}

/// Reviews of a chain of two tokens, in which a guess is kept with this probability. Returns how many had a
/// guess.
int reviews_with_guesses(ReviewBudget& budget, const StepCosts& times, double kept, int reviews) {
  std::mt19937 random(5);
  int guessed = 0;
  for (int i = 0; i < reviews; ++i) {
    budget.plan(times, 0, 1);
    if (budget.guesses(2) == 0) continue;
    budget.reviewed(1, static_cast<double>(random() % 1000) < 1000 * kept ? 1 : 0);
    ++guessed;
  }
  return guessed;
}

TEST(ReviewBudget, FollowsWhatReviewsKeep) {
  const StepCosts times = times_of({10, 13}, {1});  // a guess pays if it is kept in 4 of 10 reviews
  ReviewBudget good(2), bad(2);
  EXPECT_GT(reviews_with_guesses(good, times, .8, 300), 250);
  reviews_with_guesses(bad, times, .05, 100);
  const int tried = reviews_with_guesses(bad, times, .05, 5000);
  EXPECT_GT(tried, 50) << "guesses are tried again now and then";
  EXPECT_LT(tried * (4 - .05 * 10), .03 * 5000 * 10) << "at little cost";
  EXPECT_GT(reviews_with_guesses(bad, times, 1, 3000), 1500) << "trials find out that the text has changed";
  bad.begin();
  bad.plan(times, 0, 1);
  EXPECT_EQ(bad.guesses(2), 1) << "a sequence begins anew";
}

// The second guess of a review is never kept, so one guess is best. A second guess costs 3, so it is tried
// until it seems to be kept in fewer than about half of its reviews. This lasts for a few reviews.
TEST(ReviewBudget, LearnsTheKeptGuessesByTheirPlace) {
  const StepCosts times = times_of({10, 12, 14, 16}, {1});
  ReviewBudget budget(9);
  int single = 0;
  for (int i = 0; i < 300; ++i) {
    budget.plan(times, 0, 3);
    const int guesses = budget.guesses(9);
    ASSERT_GT(guesses, 0);
    budget.reviewed(guesses, 1);
    single += guesses == 1;
  }
  EXPECT_GT(single, 200);
  EXPECT_LT(single, 270) << "what is rarely tried is forgotten";
}

}  // namespace
}  // namespace speclab::review_budget_test
