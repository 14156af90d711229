#include "core/theory/lookahead_hold_out.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace speclab::theory::lookahead_hold_out_test {
namespace {

constexpr LookaheadLaw kHeldOutLaw{.alpha = .425, .f = 3.1};
constexpr int kHeldOutPrompts = 8;

/// A cell that follows the law on even prompts and `other` on odd ones.
LookaheadCell cell_of_halves(const LookaheadShape& shape, const LookaheadLaw& other = kHeldOutLaw) {
  LookaheadCell out{shape, {}, {}};
  for (int i = 0; i < kHeldOutPrompts; ++i) {
    out.tokens.push_back(100 * (i % 2 == 0 ? kHeldOutLaw : other).compression(shape));
    out.steps.push_back(100);
  }
  return out;
}

std::vector<LookaheadCell> square_grid(const LookaheadLaw& other = kHeldOutLaw) {
  std::vector<LookaheadCell> cells;
  for (const int n : {3, 5, 7}) {
    for (const int w : {1, 4, 9, 15}) cells.push_back(cell_of_halves({w, n, w}, other));
  }
  return cells;
}

LookaheadHoldOut hold_out_of(const std::vector<LookaheadHoldOut>& all, const std::string& what) {
  const auto found = std::ranges::find(all, what, &LookaheadHoldOut::what);
  EXPECT_NE(found, all.end()) << what;
  return *found;
}

TEST(LookaheadHoldOut, WholeRowsAndColumnsAreLeftOut) {
  std::vector<LookaheadCell> cells = square_grid();
  const auto all = hold_out_lookahead(cells);
  ASSERT_EQ(all.size(), 4u) << "G is W everywhere";
  for (const LookaheadHoldOut& each : all) {
    EXPECT_EQ(each.same_prompts.has_value(), each.what != "prompts");
    EXPECT_LT(each.same_prompts.value_or(LookaheadTest{}).error, .002) << each.what;
    ASSERT_TRUE(each.other_prompts) << each.what;
    EXPECT_LT(each.other_prompts->error, .002) << each.what;
  }
  const LookaheadHoldOut w = hold_out_of(all, "W");
  EXPECT_EQ(w.same_prompts->predictions, 12);
  EXPECT_EQ(w.other_prompts->predictions, 24) << "each half predicts the other";
  EXPECT_GT(w.same_prompts->mean_error, .05);
  for (std::size_t i = 0; i < cells.size(); ++i)
    EXPECT_EQ(w.interpolated[i], cells[i].shape.W == 4 || cells[i].shape.W == 9) << i;
  const LookaheadHoldOut n = hold_out_of(all, "N");
  for (std::size_t i = 0; i < cells.size(); ++i) EXPECT_EQ(n.interpolated[i], cells[i].shape.N == 5) << i;

  // Measurements of a row's cells must not affect the prediction of any cell of that row.
  for (LookaheadCell& c : cells) {
    if (c.shape.W != 4) continue;
    for (double& tokens : c.tokens) tokens *= 1.3;
  }
  const LookaheadHoldOut changed = hold_out_of(hold_out_lookahead(cells), "W");
  for (std::size_t i = 0; i < cells.size(); ++i) {
    EXPECT_EQ(*changed.predicted[i] == *w.predicted[i], cells[i].shape.W == 4) << i;
  }
}

TEST(LookaheadHoldOut, OtherPromptsAreOthers) {
  // Odd prompts are far easier. The fit over all prompts sees both kinds, a fit on one half does not.
  const auto all = hold_out_lookahead(square_grid({.alpha = .7, .f = 1.5}));
  const LookaheadHoldOut w = hold_out_of(all, "W");
  EXPECT_LT(w.same_prompts->error, .05);
  EXPECT_GT(w.other_prompts->error, .2);
  EXPECT_GT(hold_out_of(all, "prompts").other_prompts->error, .2);
  EXPECT_FALSE(hold_out_of(all, "prompts").same_prompts);
}

TEST(LookaheadHoldOut, GOnlyWhereItIsNotW) {
  std::vector<LookaheadCell> cells = square_grid();
  for (const int g : {1, 30}) cells.push_back(cell_of_halves({9, 5, g}));
  const auto all = hold_out_lookahead(cells);
  EXPECT_EQ(hold_out_of(all, "G").what, "G");
  EXPECT_EQ(all.size(), 5u);
}

TEST(LookaheadHoldOut, SmallGridsAndSinglePromptsAreNotDivided) {
  std::vector<LookaheadCell> cells = square_grid();
  EXPECT_TRUE(hold_out_lookahead(std::span(cells).first(5)).empty());
  for (LookaheadCell& c : cells) c.tokens.resize(1), c.steps.resize(1);
  const auto all = hold_out_lookahead(cells);
  EXPECT_EQ(all.size(), 3u);
  for (const LookaheadHoldOut& each : all) EXPECT_FALSE(each.other_prompts) << each.what;
}

TEST(Hull, HoldsWhatIsBetweenItsPoints) {
  const std::vector<LookaheadShape> square = {{1, 3, 1}, {16, 3, 16}, {1, 5, 1}, {16, 5, 16}};
  EXPECT_TRUE(in_hull(square, {1, 3, 1})) << "a corner";
  EXPECT_TRUE(in_hull(square, {8, 3, 8}));
  EXPECT_TRUE(in_hull(square, {7, 4, 7}));
  EXPECT_FALSE(in_hull(square, {17, 3, 17}));
  EXPECT_FALSE(in_hull(square, {8, 6, 8}));
  EXPECT_FALSE(in_hull(square, {8, 4, 7})) << "beside the plane W = G";
  // Inside each single range, but outside the hull.
  EXPECT_FALSE(in_hull(std::vector<LookaheadShape>{{1, 3, 1}, {16, 3, 1}, {1, 3, 16}}, {15, 3, 15}));
  EXPECT_TRUE(in_hull(std::vector<LookaheadShape>{{1, 3, 1}, {16, 3, 1}, {1, 3, 16}}, {6, 3, 6}));
  EXPECT_TRUE(in_hull(std::vector<LookaheadShape>{{4, 5, 2}}, {4, 5, 2}));
  EXPECT_FALSE(in_hull(std::vector<LookaheadShape>{{4, 5, 2}}, {4, 5, 3}));
  EXPECT_FALSE(in_hull({}, {4, 5, 3}));
  std::vector<LookaheadShape> many;
  for (int i = 1; i <= 60; ++i) many.push_back({i, 2 + i % 7, 61 - i});
  EXPECT_TRUE(in_hull(many, {30, 5, 31}));
  EXPECT_FALSE(in_hull(many, {30, 5, 32}));
}

}  // namespace
}  // namespace speclab::theory::lookahead_hold_out_test
