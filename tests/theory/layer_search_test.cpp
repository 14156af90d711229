#include "core/theory/layer_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/base/error.h"

namespace speclab::theory::layer_search_test {
namespace {

using ::testing::ElementsAre;

const SkipCosts kCosts{RowTimes(std::map<int, double>{{1, 1}, {8, 1.7}}), .1};

std::vector<int> numbers(int count) {
  std::vector<int> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

/// A layer costs acceptance when it is skipped; two neighbours cost more together than apart.
std::optional<std::vector<double>> acceptance_of(std::span<const int> skip) {
  constexpr double kLoss[] = {.5, .02, .1, .03, .01, .2, .04, .3};
  double a = 1;
  for (std::size_t i = 0; i < skip.size(); ++i) {
    a *= 1 - kLoss[skip[i]];
    if (i > 0 && skip[i] == skip[i - 1] + 1) a *= .93;
  }
  return std::vector<double>{a, a * .99, a * .98};
}

TEST(LayerSearch, ASetIsPredictedWithTheCostsAtItsBestGamma) {
  const SkipChoice choice = skip_choice({1, 4}, {.99, .99, 0}, kCosts);
  EXPECT_DOUBLE_EQ(choice.c, .8);
  EXPECT_EQ(choice.gamma, 2);
  EXPECT_DOUBLE_EQ(choice.tau, 1 + .99 + .9801);
  EXPECT_DOUBLE_EQ(choice.speedup, (1 + .99 + .9801) / (2 * .8 + 1.2));
  EXPECT_THROW(skip_choice({1}, {}, kCosts), Error);
  EXPECT_THROW(skip_choice({1}, {1.5}, kCosts), Error);
}

TEST(LayerSearch, FindsTheBestOfAllSets) {
  const std::vector<int> layers = numbers(8);
  SkipChoice best;
  for (unsigned bits = 1; bits < 255; ++bits) {
    std::vector<int> skip;
    for (const int layer : layers)
      if (bits >> layer & 1) skip.push_back(layer);
    SkipChoice choice = skip_choice(skip, *acceptance_of(skip), kCosts);
    if (choice.speedup > best.speedup) best = std::move(choice);
  }
  const SkipSearchResult found = search_skips(layers, kCosts, {.evaluations = 120}, acceptance_of);
  EXPECT_EQ(found.best.skip, best.skip);
  EXPECT_EQ(found.best.speedup, best.speedup);
  EXPECT_TRUE(found.ended);
  for (std::size_t i = 1; i < found.by_size.size(); ++i)
    EXPECT_LT(found.by_size[i - 1].skip.size(), found.by_size[i].skip.size());
  for (const SkipChoice& choice : found.by_size) EXPECT_LE(choice.speedup, found.best.speedup);
}

TEST(LayerSearch, EvaluatesEachSetOnceAndNoMoreThanAsked) {
  for (const int most : {1, 3, 8, 9, 40, 10'000}) {
    std::set<std::vector<int>> seen;
    int calls = 0;
    const SkipSearchResult found =
        search_skips(numbers(8), kCosts, {.evaluations = most, .tries = 3}, [&](std::span<const int> skip) {
          ++calls;
          EXPECT_TRUE(seen.emplace(skip.begin(), skip.end()).second);
          EXPECT_TRUE(!skip.empty() && skip.size() < 8 && std::ranges::is_sorted(skip));
          return acceptance_of(skip);
        });
    EXPECT_EQ(calls, found.evaluations);
    EXPECT_EQ(calls, std::min(most, calls));
    EXPECT_GE(calls, std::min(most, 20));
    EXPECT_LE(calls, 254);
  }
}

TEST(LayerSearch, TheSeedAndNothingElseChangesTheResult) {
  const auto visited = [](std::uint64_t seed) {
    std::vector<std::vector<int>> order;
    search_skips(numbers(8), kCosts, {.evaluations = 80, .seed = seed}, [&](std::span<const int> skip) {
      order.emplace_back(skip.begin(), skip.end());
      return acceptance_of(skip);
    });
    return order;
  };
  EXPECT_EQ(visited(1), visited(1));
  EXPECT_NE(visited(1), visited(2));
}

TEST(LayerSearch, EndsWhenItIsToldTo) {
  int calls = 0;
  const SkipSearchResult found = search_skips(
      numbers(8), kCosts, {}, [&](std::span<const int> skip) -> std::optional<std::vector<double>> {
        if (++calls > 2) return std::nullopt;
        return acceptance_of(skip);
      });
  EXPECT_FALSE(found.ended);
  EXPECT_EQ(found.evaluations, 2);
  EXPECT_THAT(found.best.skip, ElementsAre(1));
  EXPECT_EQ(calls, 3);
}

TEST(LayerSearch, RefusesWhatCannotBeSearched) {
  EXPECT_THROW(search_skips(numbers(1), kCosts, {}, acceptance_of), Error);
  EXPECT_THROW(search_skips(numbers(8), kCosts, {.evaluations = 0}, acceptance_of), Error);
  EXPECT_THROW(search_skips(numbers(8), kCosts, {.tries = 0}, acceptance_of), Error);
}

}  // namespace
}  // namespace speclab::theory::layer_search_test
