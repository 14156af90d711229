#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/decoding/drafting/selection/copy_drafter.h"

namespace speclab::copy_drafter_test {
namespace {

using ::testing::ElementsAre;

std::vector<Token> list(TokenSpan tokens) { return {tokens.begin(), tokens.end()}; }

TEST(CopyDrafter, CopiesWhatFollowedTheEndOfTheText) {
  CopyDrafter copies({.length = 3, .least_match = 1, .capacity = 50, .scores = false});
  copies.begin(std::vector<Token>{1, 2, 3, 4, 5, 1, 2});
  EXPECT_THAT(list(copies.copy()), ElementsAre(3, 4, 5));
  EXPECT_EQ(copies.match_length(), 2);
  copies.read(std::vector<Token>{1, 2, 3, 4, 5, 1, 2, 9}, nullptr);
  EXPECT_TRUE(copies.copy().empty());
  copies.read(std::vector<Token>{1, 2, 3, 4, 5, 1, 2, 9, 4}, nullptr);
  EXPECT_THAT(list(copies.copy()), ElementsAre(5, 1, 2));
  copies.begin(std::vector<Token>{4, 7});
  EXPECT_TRUE(copies.copy().empty()) << "a new text";
}

TEST(CopyDrafter, AShortMatchIsNotEnough) {
  CopyDrafter copies({.length = 2, .least_match = 2, .capacity = 50, .scores = false});
  copies.begin(std::vector<Token>{1, 2, 3, 5, 2});
  EXPECT_TRUE(copies.copy().empty()) << "one token has matched";
  copies.begin(std::vector<Token>{1, 2, 3, 5, 1, 2});
  EXPECT_THAT(list(copies.copy()), ElementsAre(3, 5));
}

// The score of a place is that of the copy which a drafter would have made there, without the tokens after
// it.
TEST(CopyDrafter, ScoresEveryPlaceAsIfItHadDraftedThere) {
  std::mt19937 random(3);
  std::vector<Token> text;
  for (int i = 0; i < 200; ++i) text.push_back(static_cast<Token>(random() % 4));
  constexpr std::size_t kPrompt = 20;
  for (const int length : {1, 4}) {
    const CopyDrafter::Settings settings{.length = length, .least_match = 2, .capacity = 300, .scores = true};
    std::vector<std::vector<double>> expected;
    const auto longest = static_cast<std::size_t>(length);
    for (std::size_t size = kPrompt; size + longest <= text.size(); ++size) {
      CopyDrafter fresh(settings);
      fresh.begin(TokenSpan(text).first(size));
      const std::vector<Token> copy = list(fresh.copy());
      std::vector<double> right;
      for (std::size_t i = 0; i < copy.size(); ++i)
        right.push_back((i == 0 || right.back() > 0) && copy[i] == text[size + i] ? 1 : 0);
      if (!copy.empty()) expected.push_back(right);
    }
    std::vector<std::vector<double>> scored;
    CopyDrafter copies(settings);
    copies.begin(TokenSpan(text).first(kPrompt));
    for (std::size_t size = kPrompt; size < text.size();) {
      size = std::min(text.size(), size + 1 + random() % 5);  // a step emits some tokens
      copies.read(TokenSpan(text).first(size), [&](std::span<const double> acceptance) {
        scored.emplace_back(acceptance.begin(), acceptance.end());
      });
    }
    EXPECT_EQ(scored, expected);
    EXPECT_GT(expected.size(), 100u);
    EXPECT_LT(expected.size(), 180u) << "some places have no copy";
    EXPECT_TRUE(std::ranges::any_of(expected, [](const auto& one) { return one.front() > 0; }));
  }
}

}  // namespace
}  // namespace speclab::copy_drafter_test
